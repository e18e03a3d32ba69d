"""English prose from a grammar: six short paragraphs about a few facts that the prompt gives or suggests.

Each word is drawn from a table whose row is named by the word before it and by one fact of the story, and every word
class looks at another fact. One step is learnable; seven steps ahead are the product of several tables, which a small
drafter cannot hold. That is what gives the drafter its honest decay by position.
"""

import random
import re
import string
from dataclasses import dataclass

import lexicon as lex
from tables import pick

SENTENCES_PER_PARAGRAPH = 4

WORDS = {
    "noun": lex.NOUNS,
    "adjective": lex.ADJECTIVES,
    "verb": lex.VERBS,
    "event": lex.EVENTS,
    "adverb": lex.ADVERBS,
    "preposition": lex.PREPOSITIONS,
}
FACT_OF_CLASS = {
    "noun": "role",
    "adjective": "object",
    "verb": "place",
    "event": "companion",
    "adverb": "name",
    "preposition": "object",
}
CHOICES = {
    "name": lex.NAMES,
    "role": lex.ROLES,
    "place": lex.PLACES,
    "object": lex.OBJECTS,
    "companion": lex.COMPANIONS,
}


@dataclass
class Chain:
    """The running state of a story: its facts and its last content word."""

    rng: random.Random
    facts: dict[str, str]
    last: str

    def word(self, kind: str) -> str:
        self.last = pick(self.rng, WORDS[kind], kind, self.last, self.facts[FACT_OF_CLASS[kind]])
        return self.last

    def subject(self, paragraph: int) -> str:
        facts = self.facts
        options = [facts["name"], pronoun(facts["name"]), f"the {facts['role']}", facts["friend"]]
        return pick(self.rng, options, "who", self.last, paragraph)

    def sentence(self, paragraph: int, index: int) -> str:
        frames = lex.FRAMES[: lex.OPENING_FRAMES] if index == 0 else lex.FRAMES
        # Where the sentence stands is part of the row, so that a word that comes back does not bring its sentence back.
        frame = pick(self.rng, frames, "frame", self.last, paragraph, index)
        parts = []
        for text, kind, _, _ in string.Formatter().parse(frame):
            parts.append(text)
            if kind:
                parts.append(self.subject(paragraph) if kind == "who" else self.word(kind))
        line = "".join(parts)
        if index == 0:
            line = f"{pick(self.rng, lex.OPENERS[paragraph], 'opener', paragraph, self.last)}, {line}"
        return capitalize(line)


def pronoun(name: str) -> str:
    return "she" if name in lex.HER_NAMES else "he"


def capitalize(line: str) -> str:
    at = 1 if line.startswith('"') else 0
    return line[:at] + line[at].upper() + line[at + 1 :]


def fix_articles(text: str) -> str:
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)


def fill(template: str, facts: dict[str, str]) -> str:
    return template.format(**facts, a_role=f"a {facts['role']}")


def complete(rng: random.Random, known: dict[str, str], topic: str | None) -> dict[str, str]:
    """Choose the facts that the prompt does not give from what it does give: other prompts tell other stories."""
    given = list(known.values())
    first, last = (topic[0].lower(), topic[-1].lower()) if topic else (given[0], given[-1])
    facts = dict(known)
    for fact, options in CHOICES.items():
        if fact not in facts:
            facts[fact] = pick(rng, options, fact, first if fact in ("name", "place", "object") else last)
    others = [name for name in lex.NAMES if name != facts["name"]]
    facts["friend"] = pick(rng, others, "friend", facts["role"], facts["place"])
    return facts


def story(rng: random.Random, known: dict[str, str], topic: str | None = None) -> str:
    facts = complete(rng, known, topic)
    intros = lex.TOPIC_INTROS if topic else lex.STORY_INTROS
    intro = capitalize(fill(pick(rng, intros, "intro", facts["role"]), facts))
    second = capitalize(fill(pick(rng, lex.SECOND_SENTENCES, "second", facts["companion"]), facts))
    chain = Chain(rng, facts, facts["object"])
    paragraphs = [f"{intro} {second}"]
    for number in range(len(lex.OPENERS)):
        paragraphs.append(" ".join(chain.sentence(number, index) for index in range(SENTENCES_PER_PARAGRAPH)))
    outro = pick(rng, lex.OUTROS, "outro", facts["role"])
    return fix_articles("\n\n".join([*paragraphs, capitalize(fill(outro, facts))]))


def invent_topic(rng: random.Random) -> str:
    """A subject, often one that no list holds, so that an unknown prompt is nothing new."""
    roll = rng.random()
    if roll < 0.35:
        return rng.choice(lex.TOPICS)
    if roll < 0.60:
        return f"{rng.choice(lex.ADJECTIVES)} {rng.choice(lex.NOUNS)}s"
    made_up = "".join(rng.choice("abcdefghiklmnoprstuvw") for _ in range(rng.randint(3, 9)))
    if roll < 0.75:
        return made_up
    if roll < 0.90:
        return f"{rng.choice([*lex.ADJECTIVES, made_up])} {rng.choice([*lex.TOPICS, made_up])}"
    return f"{rng.choice(lex.TOPICS)} and {rng.choice(lex.TOPICS)}"


def prose(rng: random.Random) -> tuple[str, str]:
    """One prompt and its answer: a story about given facts, or a text about a free topic."""
    tail = rng.choice(lex.PROMPT_TAILS)
    facts = {fact: rng.choice(options) for fact, options in CHOICES.items()}
    count = str(rng.choice([50, 60, 80, 100, 120, 150, 200, 300]))
    if rng.random() < 0.55:
        template = rng.choice(lex.STORY_PROMPTS)
        prompt = fill(template, facts)
        named = [name.removeprefix("a_") for _, name, _, _ in string.Formatter().parse(template) if name]
        answer = story(rng, {fact: facts[fact] for fact in named})
    else:
        topic = invent_topic(rng)
        prompt = rng.choice(lex.TOPIC_PROMPTS).format(topic=topic, other=invent_topic(rng), count=count, **facts)
        answer = story(rng, {}, topic)
    return fix_articles(prompt + tail.format(count=count)), answer
