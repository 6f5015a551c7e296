"""A model directory pushed to a model hub, and never unless somebody asks for it by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, errors
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from holdfast.errors import HoldfastError, first_line

# The base of what its HTTP client raises, which is another one from version to version.
TROUBLE: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
TOKEN = "set HF_TOKEN to a token that may write, or log in with `hf auth login`"


class Hub:
    """A repository of the hub to push to; made before anything is written, so that what is wrong is said first."""

    def __init__(self, name: str) -> None:
        self.name, self._api = name, HfApi(library_name="holdfast")
        try:
            validate_repo_id(name)
        except HFValidationError:
            name_words = f"--hub {name!r} is not a repository's name"
            raise HoldfastError(f"{name_words}; use OWNER/NAME or NAME, in letters, digits, dots and dashes.") from None
        self._ask("The hub does not know who you are", self._api.whoami)

    def push(self, directory: Path) -> str:
        """Make the repository, private if it is new, and upload all files; where it is then."""
        name = str(self._ask("The repository cannot be made", self._create))
        self._ask(
            "The upload failed",
            lambda: self._api.upload_folder(repo_id=name, folder_path=directory, commit_message="Export by Holdfast"),
        )
        return f"{constants.ENDPOINT}/{name}"

    def _create(self) -> str:
        return self._api.create_repo(self.name, private=True, exist_ok=True).repo_id

    def _ask(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except LocalTokenNotFoundError:
            raise HoldfastError(f"There is no token for the hub; {TOKEN}.") from None
        except OfflineModeIsEnabled:
            raise HoldfastError("HF_HUB_OFFLINE forbids going to the hub; unset it, or leave --hub out.") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            advice = f"; {TOKEN}" if status in (401, 403) else ""
            raise HoldfastError(f"{what} ({constants.ENDPOINT} says {status}): {first_line(error)}{advice}.") from None
        except (TROUBLE, OSError) as error:
            raise HoldfastError(f"{what}: {constants.ENDPOINT} cannot be reached ({first_line(error)}).") from None
