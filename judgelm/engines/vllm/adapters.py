"""LoRA adapters for a vLLM engine."""

from vllm import EngineArgs
from vllm.lora.request import LoRARequest

from judgelm.engines.model_files import adapter_truncator
from judgelm.engines.vllm.arguments import max_adapters
from judgelm.engines.vllm.backends import Backend
from judgelm.engines.weights import adapter_vocabulary, check_weights
from judgelm.errors import EngineError, first_line
from judgelm.prompts.truncation import Truncator


class VllmAdapters:
    """Maps folders and hub ids to vLLM's numbered adapters."""

    def __init__(self, backend: Backend, arguments: EngineArgs, truncator: Truncator) -> None:
        self._backend = backend
        self._arguments = arguments
        self._truncators: dict[str | None, Truncator] = {None: truncator}
        self._loaded: dict[str, LoRARequest] = {}

    def truncator(self, adapter: str | None) -> Truncator:
        """Return the truncator for an adapter's prompts."""
        if adapter not in self._truncators:
            base = str(self._arguments.model)
            self._truncators[adapter] = adapter_truncator(self._truncators[None], base, str(adapter))
        return self._truncators[adapter]

    def load(self, adapter: str) -> LoRARequest:
        """Return vLLM's handle for an adapter, loading it if needed."""
        if adapter in self._loaded:
            return self._loaded[adapter]
        if not self._arguments.enable_lora:
            raise EngineError(f"adapter {adapter}: LoRA is not enabled; set --engine-arg enable_lora=true")
        check_weights(adapter)
        self._check_vocabulary(adapter)
        limit = max_adapters(self._arguments)
        if limit is not None and len(self._loaded) >= limit:
            way_out = f"load the engine with --engine-arg max_loras={limit + 1}"
            raise EngineError(f"adapter {adapter}: this engine supports at most {limit} adapters; {way_out}")
        lora = LoRARequest(adapter, len(self._loaded) + 1, adapter)
        try:
            self._backend.load_adapter(lora)
        except Exception as error:  # workers may raise anything
            raise EngineError(f"{adapter}: vLLM cannot load the adapter: {first_line(error)}") from error
        self._loaded[adapter] = lora
        return lora

    def _check_vocabulary(self, adapter: str) -> None:
        """Reject adapters with a different vocabulary, because vLLM would use the base model's embeddings."""
        base = int(self._backend.config.model_config.get_vocab_size())
        for layer, rows in adapter_vocabulary(adapter).rows.items():
            if rows != base:
                finding = f"trained with a different vocabulary: {layer} has {rows:,} tokens, but the base has {base:,}"
                way_out = "merge the adapter (train/merge_lora.py), or use --engine transformers"
                raise EngineError(f"{adapter}: {finding}; {way_out}")
