"""Garbage is left alone for a while, and not for longer."""

import gc

import pytest

from holdfast.parallel.garbage import collection_paused


def test_collection_goes_on_afterwards_whatever_happens() -> None:
    assert gc.isenabled()
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer pause lasts"
    assert gc.isenabled()
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_one_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
