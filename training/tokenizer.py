"""Trains the demo model's byte-level BPE tokenizer on the corpus: `python -m training.tokenizer FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.corpus import texts

SPECIAL = ["<unk>", "<s>", "<pad>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 2048
SEED = 11
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(count: int = 6000) -> Tokenizer:
    """Byte-level BPE; digits are single tokens, so that numbers are copied digit by digit."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(SEED, count), trainer)
    return tokenizer


def save_tokenizer(folder: Path) -> None:
    """Trains, wraps for transformers with the chat template, and saves."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
        chat_template=CHAT_TEMPLATE,
    )
    folder.mkdir(parents=True, exist_ok=True)
    wrapped.save_pretrained(folder)


if __name__ == "__main__":
    save_tokenizer(Path(sys.argv[1]))
