"""LoRA adapters of a vLLM engine."""

from itertools import count

from vllm import EngineArgs
from vllm.lora.request import LoRARequest

from judgelm.engines.model_files import adapter_truncator
from judgelm.engines.vllm.arguments import max_adapters
from judgelm.engines.vllm.backends import Backend
from judgelm.engines.weights import adapter_vocabulary, check_weights
from judgelm.errors import EngineError, first_line
from judgelm.prompts.truncation import Truncator


class VllmAdapters:
    """Adapters by folder or hub id; vLLM knows them by numbers.

    Args:
        backend: the running engine.
        arguments: its arguments.
        truncator: of the base's prompts.
    """

    def __init__(self, backend: Backend, arguments: EngineArgs, truncator: Truncator) -> None:
        self._backend = backend
        self._arguments = arguments
        self._truncators: dict[str | None, Truncator] = {None: truncator}
        self._loaded: dict[str, LoRARequest] = {}
        self._ids = count(1)

    def truncator(self, adapter: str | None) -> Truncator:
        """The truncator for an adapter's prompts.

        Raises:
            ModelError: it was trained on another base, or with another vocabulary.
        """
        if adapter not in self._truncators:
            base = str(self._arguments.model)
            self._truncators[adapter] = adapter_truncator(self._truncators[None], base, str(adapter))
        return self._truncators[adapter]

    def load(self, adapter: str) -> LoRARequest:
        """The adapter as vLLM knows it, loaded if it is not.

        Raises:
            EngineError: vLLM cannot load it, or has no room for it.
            ModelError: it has no weights, or unsafe ones.
        """
        if adapter in self._loaded:
            return self._loaded[adapter]
        if not self._arguments.enable_lora:
            raise EngineError(f"adapter {adapter}: load the engine with --engine-arg enable_lora=true")
        check_weights(adapter)
        self._check_vocabulary(adapter)
        limit = max_adapters(self._arguments)
        if limit is not None and len(self._loaded) >= limit:
            raise EngineError(
                f"adapter {adapter}: on a CPU this engine has room for {limit}; load it with "
                f"--engine-arg max_loras={limit + 1}"
            )
        lora_id = next(self._ids)  # in the name too, since vLLM's prefix cache outlives an unloaded adapter
        lora = LoRARequest(f"{adapter}#{lora_id}", lora_id, adapter)
        try:
            self._backend.load_adapter(lora)
        except Exception as error:  # the worker that loads it may raise anything
            raise EngineError(f"{adapter}: vLLM cannot load the adapter: {first_line(error)}") from error
        self._loaded[adapter] = lora
        return lora

    def _check_vocabulary(self, adapter: str) -> None:
        """Refuse embeddings of another vocabulary: vLLM serves adapters on the base's own.

        Raises:
            EngineError: the adapter has some.
        """
        base = int(self._backend.config.model_config.get_vocab_size())
        for layer, rows in adapter_vocabulary(adapter).rows.items():
            if rows != base:
                raise EngineError(
                    f"{adapter}: trained with another vocabulary than its base: {layer} has {rows:,} tokens, the base "
                    f"{base:,}; merge it (train/merge_lora.py), or use --engine transformers"
                )

    def unload(self, adapter: str) -> None:
        """Free an adapter's room; nothing happens where it is not loaded."""
        self._truncators.pop(adapter, None)
        if (lora := self._loaded.pop(adapter, None)) is not None:
            self._backend.unload_adapter(lora)
