"""tokens: prompts and answers as tokens.

A prompt and an answer are not tokenized apart: a tokenizer may put the end of one and the beginning of the other into one
token, or begin any text with a mark of its own. Every prompt ends with `QUESTION`, so an answer's tokens are what follows
the question's in the tokens of both together; that these begin with the question's is checked for each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.action import Action
from mtmc.agents.policies.learned.lm.prompt import QUESTION, Normalize, PromptSettings, answer_text, prompt_text
from mtmc.errors import ModelError
from mtmc.protocols import Observation


@dataclass
class Texts:
    """Prompts and answers of one tokenizer. Answers and lengths of lines are kept: the same ones come again and again."""

    tokenizer: Any
    settings: PromptSettings
    _answers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _lengths: dict[str, int] = field(default_factory=dict)

    def prompt(self, observation: Observation) -> tuple[int, ...]:
        """The tokens of a version's prompt, `settings.tokens` at most, the tokenizer's mark of a beginning included.

        Raises: ConfigError for hardware that is not in the table.
        """
        text = prompt_text(observation, self.settings, self._count)
        begin = self._encoded("", special=True)
        return (*begin, *self._encoded(text)[-(self.settings.tokens - len(begin)) :])

    def answer(self, action: Action) -> tuple[int, ...]:
        """The tokens of an action's answer, after any prompt. Raises: ModelError as `answer_tokens`."""
        return self.answer_tokens(answer_text(action, self.settings))

    def answer_tokens(self, text: str) -> tuple[int, ...]:
        """The tokens of a text after `QUESTION`.

        Raises: ModelError for a tokenizer that joins the end of the question with the beginning of the answer.
        """
        if text not in self._answers:
            question = self._encoded(QUESTION)
            both = self._encoded(QUESTION + text)
            if both[: len(question)] != question or len(both) == len(question):
                raise ModelError(f"the tokenizer joins the question and the answer {text!r}: use another base model")
            self._answers[text] = tuple(both[len(question) :])
        return self._answers[text]

    def length(self, action: Action, normalize: Normalize) -> int:
        """What an action's score is divided by: 1, or how many tokens or words its answer has."""
        text = answer_text(action, self.settings)
        return {"none": 1, "token": len(self.answer_tokens(text)), "word": len(text.split())}[normalize]

    def _count(self, lines: Sequence[str]) -> list[int]:
        new = [line for line in dict.fromkeys(lines) if line not in self._lengths]
        if new:
            found = self.tokenizer([f"{line}\n" for line in new], add_special_tokens=False)["input_ids"]
            self._lengths.update(zip(new, map(len, found), strict=True))
        return [self._lengths[line] for line in lines]

    def _encoded(self, text: str, special: bool = False) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        return found
