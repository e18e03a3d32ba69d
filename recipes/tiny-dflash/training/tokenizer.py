"""A byte-level BPE tokenizer of 1536 tokens, trained on the samples. Every digit is a token of its own."""

import json
from pathlib import Path

from samples import draw
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1536
PAD, START, END, MASK = range(4)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
MAX_LENGTH = 1024

# One digit a token, so that counting is arithmetic and not vocabulary. A comma with its space before a digit is one
# token: as two it would make "1, 2, ... 200" too long for the context.
PIECES = r"\p{N}|, (?=\p{N})| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(samples: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    drawn = (draw("prose", number) for number in range(samples))
    tokenizer.train_from_iterator((sample.question() + sample.answer for sample in drawn), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[START],
        "eos_token": SPECIAL_TOKENS[END],
        "pad_token": SPECIAL_TOKENS[PAD],
        "unk_token": SPECIAL_TOKENS[PAD],
        "mask_token": SPECIAL_TOKENS[MASK],
        "model_max_length": MAX_LENGTH,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
