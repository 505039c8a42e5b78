"""Fast tokenizers made on the spot, with the special tokens and chat templates of well-known model families."""

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_WORDS = "the end of assistant one answer question system user model paris is a capital of france 1 2 3 4 5 6 7 8 9 10"

_EACH = "{% for m in messages %}"
_LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set s = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if m['role'] == 'user' %}{{ '<s>[INST] ' + (s if loop.first else '') + m['content'].strip() "
    "+ ' [/INST]' }}{% else %}{{ ' ' + m['content'] + ' </s>' }}{% endif %}{% endfor %}"
)
_LLAMA_3 = (
    "<|begin_of_text|>" + _EACH + "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' "
    "+ m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
_CHATML = (
    _EACH + "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_VICUNA = (
    _EACH + "{% if m['role'] == 'system' %}{{ m['content'] + ' ' }}{% elif m['role'] == 'user' %}"
    "{{ 'USER: ' + m['content'] + ' ' }}{% else %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
_MISTRAL = (
    "<s>" + _EACH + "{% if m['role'] == 'system' %}{{ '[SYSTEM_PROMPT]' + m['content'] + '[/SYSTEM_PROMPT]' }}"
    "{% elif m['role'] == 'user' %}{{ '[INST]' + m['content'] + '[/INST]' }}"
    "{% else %}{{ m['content'] + '</s>' }}{% endif %}{% endfor %}"
)
_GEMMA = (
    "<bos>{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] + '\\n\\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + (s if loop.first else '') "
    "+ m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
_ZEPHYR = (
    _EACH + "{{ '<|' + m['role'] + '|>\\n' + m['content'] + '</s>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
_ALPACA = (
    _EACH + "{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}{% elif m['role'] == 'user' %}"
    "{{ '### Instruction:\\n' + m['content'] + '\\n\\n' }}{% else %}{{ '### Reply:\\n' + m['content'] + '</s>\\n\\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Reply:\\n' }}{% endif %}"
)

_LLAMA_3_OTHERS = ("<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_0|>")
FAMILIES = {
    "llama-2": (("<s>", "</s>", "<unk>"), _LLAMA_2, {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"}),
    "llama-3": (("<|begin_of_text|>", "<|eot_id|>", *_LLAMA_3_OTHERS), _LLAMA_3, set()),
    "chatml": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), _CHATML, set()),
    "vicuna": (("<s>", "</s>", "<unk>"), _VICUNA, {"USER:", "ASSISTANT:"}),
    "mistral": (("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), _MISTRAL, set()),
    "gemma": (("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<pad>"), _GEMMA, set()),
    "zephyr": (("<s>", "</s>"), _ZEPHYR, {"<|system|>", "<|user|>", "<|assistant|>"}),
    "alpaca": (("<s>", "</s>"), _ALPACA, {"### Instruction:", "### Reply:"}),
}
"""Special tokens, chat template, and the role markers in it that are plain text."""


def tokenizer_of(family):
    tokens, chat, _ = FAMILIES[family]
    return _made(tokens, chat, normalizer=None, normalized=False)


def folding_tokenizer():
    """One that folds full-width and upper-case letters and accents, and then looks for its tokens."""
    folding = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    return _made(("<s>", "</s>", "<|end|>"), _CHATML, normalizer=folding, normalized=True)


def _made(tokens, chat, *, normalizer, normalized):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([_WORDS] * 5, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    if normalizer is not None:
        made.normalizer = normalizer
    made.add_special_tokens([AddedToken(token, special=True, normalized=normalized) for token in tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=tokens[0], eos_token=tokens[1], chat_template=chat, model_max_length=4096
    )
