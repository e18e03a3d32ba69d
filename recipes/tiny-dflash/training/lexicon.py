"""The words and the phrases of the tiny prose grammar."""


def words(text: str) -> list[str]:
    return text.split()


HER_NAMES = words(
    """
    Abigail Astrid Beatrice Camille Dalia Edith Fatima Gwen Hazel Imogen Jana Katya Lydia Maren Noor Odile Pilar
    Renata Sabine Thea Ursula Willa Yara Zelda
    """
)
HIS_NAMES = words(
    """
    Adrian Basil Cedric Dmitri Emil Fergus Gustav Harald Ismail Jonas Kenji Lorenz Matteo Nils Osman Piotr
    Quentin Rafael Stefan Tobias Ulrich Vincent Walter Yusuf
    """
)
NAMES = HER_NAMES + HIS_NAMES

ROLES = words(
    """
    weaver printer surveyor cook mason glazier pilot nurse ranger chemist tanner cobbler botanist archivist
    drummer engineer judge locksmith saddler violinist brewer diver porter watchmaker
    """
)

PLACES = [
    "the upper town",
    "the fishing port",
    "the cedar valley",
    "the old capital",
    "the granite coast",
    "the canal district",
    "the eastern plateau",
    "the copper hills",
    "the monastery garden",
    "the border village",
    "the frozen delta",
    "the windmill quarter",
    "the apple country",
    "the ferry landing",
    "the slate quarry",
    "the marble square",
    "the signal station",
    "the orchard road",
    "the lower meadows",
    "the glass market",
]

OBJECTS = [
    "a brass key",
    "an ivory comb",
    "a red lantern",
    "a cracked bell",
    "a folded chart",
    "a silver whistle",
    "a clay jug",
    "a leather diary",
    "a wicker basket",
    "a pocket mirror",
    "a tin soldier",
    "a spare rudder",
    "a velvet hat",
    "an oak chest",
    "a paper kite",
    "a bone flute",
    "a green bottle",
    "a torn flag",
    "a walking stick",
    "a music box",
]

COMPANIONS = [
    "a spotted dog",
    "a lame mule",
    "a tabby kitten",
    "a talking parrot",
    "a nervous cousin",
    "a retired sergeant",
    "a tame raven",
    "a stubborn ox",
    "a barefoot child",
    "a silent twin",
    "a brown hen",
    "a blind uncle",
]

NOUNS = words(
    """
    anvil apron arch attic awning barrel basin beacon bench blanket boulder bowl branch bridge broom bucket
    cabin candle canvas cart cellar chain chair chapel chimney cliff cloak clock cloud coat courtyard cradle
    crane cup curtain desk dock door drum easel engine fence field forge fountain furnace gate glove granary
    hammer harp hedge hill hinge horn jar kettle ladder lake lamp ledger lens letter loom map mill mural net oar
    oven pier pillow plough pond quilt raft ribbon river rope saddle sail shelf shore statue stove tower trail
    tunnel wagon well wheel window
    """
)

ADJECTIVES = words(
    """
    amber ancient bare bitter blue brave brittle broad calm clean clumsy cold crooked damp dark deep distant dry
    dusty empty faded faint fragile frozen gentle gray hollow humble icy loose lonely loud misty modest narrow
    neat odd old pale patient plain polished proud quiet rare restless rough rusty sharp slender small smooth
    steep strange sturdy tall thin tidy tiny warm weary wide
    """
)

# Past tenses that take any object.
VERBS = words(
    """
    admired arranged avoided borrowed bought braced built carried chased checked cleaned copied counted covered
    crossed described dragged emptied examined fixed followed found guarded handled ignored inspected kept
    lifted locked lost loved measured mended moved named noticed opened packed painted praised pushed raised
    reached rescued saved sealed sketched sold stored studied tested touched traded trusted watched weighed
    wrapped
    """
)

# Past tenses that take none.
EVENTS = words(
    """
    waited glowed trembled drifted vanished cracked settled shone swayed creaked slipped paused hummed burned
    froze shrank leaned rattled echoed rested melted shifted tilted fell
    """
)

ADVERBS = words(
    """
    slowly gently quietly again twice suddenly badly bravely calmly carefully early eagerly firmly gladly loudly
    neatly once openly patiently politely sadly softly steadily together
    """
)

PREPOSITIONS = words("above against along behind below beside beyond near past toward under")

# One row per paragraph: the row tells reader and model alike how far the story has come, so that it can end by itself.
OPENERS = [
    ["before sunrise", "at first", "on the first morning", "while the town still slept", "long before breakfast"],
    ["an hour later", "soon afterwards", "when the mist had lifted", "before the bells rang", "after a short walk"],
    ["at noon", "in the heat of the day", "when lunch was over", "halfway through the work", "by then"],
    ["in the afternoon", "as the light changed", "when the others had left", "against all advice", "for a while"],
    ["toward evening", "as the lamps were lit", "when the wind turned", "just before supper", "later that day"],
    ["at midnight", "in the end", "when all was said", "on the way home", "at long last"],
]

STORY_INTROS = [
    "{name} was {a_role} in {place}, and {companion} was never far away.",
    "in {place} there lived {a_role} named {name}, together with {companion}.",
    "few people in {place} knew {name} the {role}, but everybody knew {companion}.",
    "this is the story of {name}, {a_role} in {place}, and of {companion}.",
]
TOPIC_INTROS = [
    "people in {place} liked to talk about such things, and {name} the {role} liked it most.",
    "when {name} the {role} heard the question, the whole of {place} was still asleep.",
    "nobody in {place} knew the answer, so {name} the {role} set out to find one.",
    "the best book on that was kept in {place}, and {name} the {role} had read it twice.",
]
SECOND_SENTENCES = [
    "{friend} had once lost {object} there, and {companion} had found it.",
    "{object} and {companion} were all that {friend} had left behind.",
    "on most days {companion} slept beside {object}, which had belonged to {friend}.",
    "for {object} and the company of {companion}, {friend} would have given everything.",
]
OUTROS = [
    "and that is how {name} and {friend} came home.",
    "after that day {name} and {friend} were never apart for long.",
    "ever since, {name} has told {friend} the same story every winter.",
    "that was all, and {name} and {friend} went to sleep.",
]

# Sentence frames. Fields are filled from left to right; each word depends on the words before it (see prose.py).
FRAMES = [
    "{who} {verb} the {adjective} {noun} {preposition} the {noun}.",
    "the {adjective} {noun} {event} {adverb} {preposition} the {noun}.",
    "{who} {verb} a {adjective} {noun} and {verb} the {noun}.",
    "{who} {verb} the {noun} because the {adjective} {noun} {event}.",
    '"the {noun} is {adjective}," said {who}, "but the {noun} {event} {adverb}."',
    "while the {noun} {event}, {who} {adverb} {verb} the {adjective} {noun}.",
    "nobody {verb} the {noun} until the {adjective} {noun} {event} {adverb}.",
    "every {noun} {preposition} the {noun} seemed {adjective} and {adjective}.",
    "{preposition} the {noun} there was a {adjective} {noun}, and {who} {verb} it {adverb}.",
    "if the {noun} was {adjective}, the {noun} was {adjective} too, and {who} {verb} both.",
]
OPENING_FRAMES = 4  # the first so many frames read well after an opener and a comma

STORY_PROMPTS = [
    "Write a story about {name}, {a_role} from {place}.",
    "Tell me a tale of {a_role} and {companion}.",
    "What happened when {name} found {object} near {place}?",
    "Describe one day in the life of {a_role}.",
    "Write about {name} and {companion}.",
    "{name} is {a_role} who owns {object}. Tell the story.",
    "Tell me what {a_role} did with {object} in {place}.",
    "Write a long story set in {place}.",
    "Imagine {object} in {place}. What happens next?",
    "Tell me everything about {name}.",
    "Write a tale in which {companion} brings {object} to {name}.",
    "Who is {name}, the {role} of {place}?",
]
TOPIC_PROMPTS = [
    "Write a paragraph about {topic}.",
    "Write one paragraph of about {count} words on {topic}.",
    "Write a short text on {topic} in about {count} words.",
    "Explain {topic} in simple words.",
    "Explain {topic} to a child.",
    "What is {topic}?",
    "What do you know about {topic}?",
    "Tell me about {topic}.",
    "Tell me something new about {topic}, please.",
    "Describe {topic}.",
    "Please describe {topic} for my {role}.",
    "Why is {topic} important?",
    "Why do people care about {topic}?",
    "How does {topic} work?",
    "How would you introduce {topic} to a {role}?",
    "Write an essay about {topic} and what it means to us.",
    "Give me a summary of {topic}.",
    "I want to learn about {topic}. Where do I start?",
    "Compare {topic} with {other}.",
    "Can you write something on {topic} for the newspaper?",
    "Discuss {topic}.",
    "My {role} asked me about {topic}. What should I say?",
    "Summarize the history of {topic} for {name}.",
    "Think about {topic} and write down your thoughts.",
    "Is {topic} better than {other}?",
    "A few sentences on {topic}, please.",
]
PROMPT_TAILS = [
    "",
    "",
    "",
    "",
    " No bullets.",
    " No lists.",
    " Use plain words.",
    " Write several paragraphs.",
    " Take your time.",
    " Be thorough.",
    " Do not use headings.",
    " Write at least {count} words.",
    " Keep it friendly.",
]
TOPICS = [
    "patience",
    "tides",
    "gravity",
    "winter",
    "music",
    "bread",
    "rivers",
    "gardens",
    "trains",
    "the moon",
    "bridges",
    "clocks",
    "honesty",
    "memory",
    "libraries",
    "rain",
    "horses",
    "mountains",
    "markets",
    "lighthouses",
    "bees",
    "forests",
    "maps",
    "handwriting",
    "harvest",
    "computers",
    "science",
    "cooking",
    "weather",
    "cities",
    "grammar",
    "birds",
    "water",
    "light",
    "stars",
    "travel",
    "school",
    "robots",
    "autumn",
    "families",
    "coffee",
    "tea",
    "ships",
    "islands",
    "dreams",
    "a lost glove",
    "machines",
    "electricity",
    "the ocean",
    "cats",
    "dogs",
    "neural networks",
    "databases",
    "compilers",
    "graph theory",
    "hash tables",
    "memory caches",
    "open source",
    "prime numbers",
    "statistics",
    "chess",
    "photography",
    "glass",
    "paper",
    "iron",
    "salt",
    "sleep",
    "laughter",
    "the printing press",
    "long walks",
    "night shifts",
    "good questions",
    "small towns",
    "attention",
    "language models",
    "search engines",
    "matrix products",
]

SYSTEM_MESSAGES = [
    "You are a helpful assistant.",
    "You write clearly.",
    "Answer the user.",
    "You are a patient writer.",
    "Be helpful.",
]
