"""The fast path for Llama-like models: packed tokens, folded weights, gradients written by hand, a preallocated cache.

    transformers model -> Architecture (what it is made of) -> folded weights -> packed pass, or decoding with a cache

Parameters stay where transformers keeps them: nothing here owns a weight, so saving, loading, optimisers and the plain
path see one and the same model. The plain transformers path is the tested equal and the fallback for everything else.
"""
