"""The requests that the corpus answers: stories, questions, small talk and short dialogues.

`sample(rng)` draws one `Request`. Stories are topic x character x setting x style, questions are a pattern x
a subject, and a conversation adds follow-ups. The lists cannot make any request of `HELD_OUT`, and nearly all of
its characters and subjects, like all of `UNSEEN_HEROES` and `UNSEEN_THINGS`, are in none of them: they are new to a
model when its card is written.

`guide` is a system message for the writing model alone. It keeps answers short and plain and is not kept in
the corpus, so the small models learn to answer that way unasked. `system` is one that stays.
"""
from dataclasses import dataclass
from random import Random

from names import ALIKE, FEMALE, MALE, SURNAMES


@dataclass
class Request:
    kind: str            # story | scene | question | talk
    guide: str           # system message for the writer, not kept
    turns: list[str]     # user messages, answered one after another
    system: str = ""     # system message that is kept, most often none


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def words(text: str) -> list[str]:
    return [" ".join(word.split()) for word in text.split(",") if word.strip()]


STORY_GUIDE = ("You are a storyteller for young children. Write one short story in simple words and short sentences. "
               "Give it a beginning, a problem and an ending. Do not write a title. Write only the story.")
SCENE_GUIDE = ("You write short scenes for young children. Write a short scene in simple words. The two characters "
               "talk to each other, and their words stand in quotation marks. Write only the scene, without a title.")
QUESTION_GUIDE = ("You are a kind teacher who talks to young children. Answer in two or three short, simple sentences. "
                  "Do not use lists.")
TALK_GUIDE = ("You are a small, friendly helper who likes stories and questions. Answer in one or two short, warm "
              "sentences. Do not say your name.")

CHARACTERS = lines("""
    a small rabbit named Pip
    a shy fox named Fern
    a curious mouse named Dot
    a brave kitten named Luna
    a clumsy bear cub named Bruno
    an old turtle named Walter
    a young owl named Olive
    a cheerful frog named Hopper
    a tiny ant named Annie
    a lonely whale named Blue
    a playful puppy named Max
    a grumpy cat named Oscar
    a gentle elephant named Ella
    a fast little horse named Star
    a baby dragon named Ember
    a kind giant named Tom
    a small robot named Beep
    a friendly ghost named Misty
    a young wizard named Finn
    a little witch named Nora
    a girl named Lily
    a boy named Ben
    a girl named Mia
    a boy named Sam
    a girl named Zoe
    a boy named Leo
    twin sisters named Anna and Rose
    two brothers named Jack and Tim
    a girl named Sara and her dog
    a boy named Omar and his cat
    a farmer named Mr. Green
    a baker named Mrs. Plum
    a gardener named Rosa
    a fisherman named Pete
    a painter named Clara
    a teacher named Miss Bell
    a shoemaker named Hans
    a sailor named Captain Jones
    a clockmaker named Otto
    a postman named Henry
    a grandmother who bakes bread
    a grandfather who tells old tales
    a young princess named Ivy
    a prince named Edgar
    a knight named Sir Robin
    a king who cannot sleep
    a queen who loves flowers
    a hedgehog named Spike
    a squirrel named Hazel
    a duck named Daisy
    a goose named Gus
    a pig named Rosie
    a sheep named Woolly
    a goat named Billy
    a cow named Clover
    a hen named Penny
    a little bird named Sky
    a crow named Jet
    a penguin named Waddles
    a seal named Sandy
    a crab named Pinch
    a small fish named Goldie
    an octopus named Inky
    a dolphin named Splash
    a snail named Slow Joe
    a bee named Buzz
    a butterfly named Violet
    a spider named Webster
    a caterpillar named Munch
    a ladybug named Ruby
    a wolf cub named Gray
    a deer named Willow
    a beaver named Chip
    a badger named Barnaby
    a raccoon named Ricky
    a lion cub named Leon
    a monkey named Coco
    a parrot named Polly
    a giraffe named Gigi
    a zebra named Zack
    a little cloud named Puff
    a snowman named Frost
    a toy train named Choo
    a wooden doll named Molly
    a teddy bear named Button
    a little boat named Drift
    a red balloon
    a lost star
    a tired moon
    a small seed
    an old oak tree
    a paper kite
""")

TOPICS = lines("""
    learning to share
    being brave in the dark
    telling the truth
    making a new friend
    finding a lost toy
    helping a stranger
    saying sorry
    being kind to animals
    trying something new
    learning to swim
    learning to fly
    learning to read
    a birthday surprise
    a broken window
    a missing cookie
    a secret garden
    a hidden treasure
    an old map
    a strange noise at night
    a big storm
    the first snow
    a rainy day
    a hot summer day
    a long walk home
    getting lost
    finding the way home
    a race
    a contest
    a picnic
    a party
    a new baby
    moving to a new house
    the first day of school
    losing a tooth
    planting a tree
    growing a pumpkin
    baking a cake
    cooking soup
    building a bridge
    building a tree house
    making a kite
    fixing a broken clock
    painting a picture
    singing a song
    learning to dance
    waiting patiently
    working together
    listening to others
    cleaning up a mess
    keeping a promise
    giving a gift
    losing a game
    winning without bragging
    being too proud
    being too greedy
    being jealous of a friend
    missing a friend
    being afraid of water
    being afraid of thunder
    not wanting to go to bed
    a magic stone
    a magic key
    a magic hat
    a talking tree
    a wish that came true
    a wish that went wrong
    a dream about the moon
    a trip to the sea
    a trip to the stars
    a ride on a train
    a ride on a boat
    a lost letter
    a message in a bottle
    a hungry visitor
    an empty bowl
    a warm blanket
    a lost mitten
    a muddy puddle
    a rainbow
    a night of fireflies
    a nest of eggs
    a hurt bird
    a stuck wagon
    a small light in the fog
    a door that would not open
    a river that was too wide
    a mountain that was too high
    a hole in the fence
    a shadow on the wall
    a smile that came back
""")

# Half of the characters and topics are put together from parts, so that nearly every story asks for something new.
ADJECTIVES = words("""
    small, shy, curious, brave, clumsy, old, young, cheerful, lonely, playful, grumpy, gentle, sleepy, hungry, kind,
    proud, quiet, silly, clever, lazy, busy, careful, friendly, little, tiny, big, happy, sad, tired, lucky
""")
JOBS = words("""
    farmer, baker, gardener, painter, teacher, shoemaker, sailor, clockmaker, tailor, miller, doctor, cook, driver, blacksmith,
    librarian, potter, weaver, fisher, nurse, shepherd, builder, inventor, singer, dancer, pilot, plumber, barber, grocer
""")
OBJECTS = words("""
    ball, kite, boat, cup, spoon, shoe, sock, hat, coat, scarf, glove, ribbon, button, coin, key, lock, box, bag, basket,
    bottle, bucket, candle, lamp, lantern, mirror, clock, watch, bell, whistle, flute, trumpet, guitar, piano, book, letter,
    map, pencil, brush, picture, puzzle, doll, robot, train, bicycle, wagon, wheel, sled, rope, net, tent, blanket, pillow,
    bed, table, door, window, gate, fence, bridge, well, chimney, roof, wall, garden, tree, leaf, flower, rose, seed,
    pumpkin, apple, pear, cherry, carrot, potato, onion, cake, pie, cookie, pancake, sandwich, egg, nest, shell, pebble,
    stone, crystal, star, cloud, snowball, icicle, balloon, bubble, swing, slide, crown, ring, necklace, medal, flag,
    mask, cape, broom, shovel, hammer, needle, thread, sweater, boot, mitten, statue, fountain, teapot, kettle, pot
""")
STATES = words("""
    lost, broken, tiny, huge, old, new, shiny, muddy, magic, missing, strange, heavy, stolen, forgotten, beautiful, golden,
    red, blue, green, yellow, noisy, frozen, empty, special, hidden, secret, dirty, torn, borrowed, favorite
""")

SETTINGS = lines("""
    in a quiet forest
    on a small farm
    by the sea
    on a sunny beach
    in a snowy village
    in a busy town
    in a big city park
    in a castle on a hill
    in a deep cave
    on a high mountain
    near a slow river
    by a clear pond
    in a green meadow
    in a dark wood
    in a warm kitchen
    in an old house
    in a little cottage
    in a garden full of flowers
    in a school yard
    in a toy shop
    in a bakery
    in a library
    in a barn
    in a lighthouse
    on a ship
    on an island
    under the sea
    under the ground
    up in the clouds
    on the moon
    in the desert
    in the jungle
    in a zoo
    at the market
    at the train station
    in an apple orchard
    in a field of wheat
    in a tall tree
    behind a waterfall
    at the edge of the world
    on a cold winter night
    on a bright spring morning
    on a windy autumn day
    long ago in a far land
    in the attic of a tall house
    in a tent by the lake
""")

STYLES = lines("""
    Use short sentences.
    Make it funny.
    Make it gentle, like a bedtime story.
    Let the characters talk to each other.
    Give it a happy ending.
    Give it a surprising ending.
    Make it about one small event.
    Start with "Once upon a time".
    Start with "One morning".
    Start with "One day".
    Start with "There was once".
    Start in the middle of things.
    Start with someone speaking.
    Start with the weather.
    End with a lesson.
    End with everyone going home.
    Make it exciting.
    Make it a little sad, but hopeful.
    Use the words "small" and "bright".
    Use the words "quiet" and "warm".
    Use the words "wind" and "door".
    Use the words "hungry" and "bread".
    Use the words "old" and "song".
""")

STORY_REQUESTS = lines("""
    Write a short story about {character} {setting}. It is about {topic}.
    Tell me a story about {character} and {topic}.
    Tell me a short story about {topic}. It is about {character} {setting}.
    Please tell me a bedtime story about {character} {setting}.
    Write a story for a child about {topic}, with {character}.
    I would like a story about {character} {setting}.
    Can you tell me a story about {topic}?
    Write a little story that happens {setting}. It has {character} in it.
    Tell a story about {character}, {other} and {topic}.
    Write a story about {character} who meets {other} {setting}.
""")

SCENE_REQUESTS = lines("""
    Write a short talk between {character} and {other} about {topic}.
    {character} meets {other} {setting}. What do they say to each other?
    Write a scene {setting} where {character} asks {other} for help.
    Write a short conversation between {character} and {other}.
    {character} and {other} do not agree about {topic}. Write what they say.
""")

ANIMALS = words("""
    cats, dogs, horses, cows, sheep, pigs, hens, ducks, geese, rabbits, mice, foxes, wolves, bears, deer, owls, eagles,
    crows, robins, parrots, penguins, whales, dolphins, sharks, seals, crabs, frogs, turtles, snakes, lizards,
    elephants, lions, tigers, monkeys, giraffes, zebras, camels, kangaroos, pandas, bees, ants, butterflies, spiders,
    snails, worms, bats, squirrels, beavers, hedgehogs, goats, donkeys, swans, fireflies, octopuses, starfish
""")
THINGS = words("""
    rain, snow, wind, thunder, lightning, a rainbow, a cloud, fog, ice, fire, smoke, the sun, the moon, a star, the sky,
    a river, a lake, the sea, an island, a mountain, a volcano, a desert, a forest, a tree, a leaf, a flower, a seed, a
    root, grass, bread, milk, cheese, honey, butter, soup, an egg, an apple, a carrot, a potato, rice, salt, sugar,
    chocolate, a house, a bridge, a road, a boat, a train, a plane, a bicycle, a car, a clock, a mirror, a lamp, a
    candle, a window, a door, a key, a book, a pencil, a paper kite, a drum, a guitar, a piano, a bell, a map, a
    compass, a magnet, a wheel, a ladder, a hammer, glass, wood, metal, gold, sand, a rock, a shadow, an echo, the
    night, the morning, spring, summer, autumn, winter, a holiday, a birthday, a dream, sleep, music, dancing, painting,
    a friend, a family, a teacher, a doctor, a farmer, a baker, a firefighter, a sailor, a school, a library, a market,
    a garden, a farm, a zoo, the heart, the brain, the skin, the eyes, the ears, the teeth, the bones, the lungs
""")
DEEDS = words("""
    make a sandwich, bake bread, plant a seed, wash my hands, brush my teeth, tie my shoes, make a new friend, say sorry,
    fall asleep, learn to swim, ride a bicycle, draw a cat, build a sand castle, make a kite, take care of a dog, feed
    the birds, keep a garden, clean my room, pack a bag, write a letter, tell a good story, be brave, be kind, calm down,
    save water, cross the road safely, make soup, set the table, fold paper, sing a song, catch a ball, skip a stone,
    find the north, read a map, stay warm, stay cool, share my toys, listen better, thank someone, help at home, make a
    gift, plan a party, play hide and seek, count to one hundred, learn new words, make tea, boil an egg, grow tomatoes
""")
WHYS = lines("""
    Why is the sky blue?
    Why is grass green?
    Why do leaves fall in autumn?
    Why do cats purr?
    Why do dogs bark?
    Why do birds sing?
    Why do birds fly south?
    Why do bees make honey?
    Why do we sleep?
    Why do we dream?
    Why do we laugh?
    Why do we cry?
    Why do we need water?
    Why do we eat breakfast?
    Why do we brush our teeth?
    Why do we wear shoes?
    Why do we go to school?
    Why do boats float?
    Why does ice melt?
    Why does it rain?
    Why does the moon change shape?
    Why does the sun set?
    Why does a ball bounce?
    Why do stars twinkle?
    Why is the sea salty?
    Why is snow white?
    Why is it cold in winter?
    Why is sharing good?
    Why should I tell the truth?
    Why should I be kind?
    Why do people sing?
    Why do trees have roots?
    Why do fish not drown?
    Why do we have bones?
    Why do balloons float?
    Why do we say please?
    Why do plants need light?
    What happens when water boils?
    What happens at night?
    Where do fish live?
    Where does bread come from?
    Where does rain come from?
    Who was the first person on the moon?
    How many legs does a spider have?
    How many days are in a week?
    How many months are in a year?
    What color do you get from blue and yellow?
    What is the biggest animal?
    What is the fastest animal?
    What is the opposite of hot?
    What is two plus two?
    What comes after ten?
    Which is heavier, a stone or a feather?
    What do farmers do all day?
    What do I do if I am sad?
    What do I do if I am lost?
    What can I do on a rainy day?
    What is a good name for a cat?
    What is a good name for a boat?
    What should I eat for lunch?
""")
QUESTION_PATTERNS = [
    ("What is {}?", THINGS), ("Tell me about {}.", THINGS), ("What do you know about {}?", THINGS),
    ("What can you tell me about {}?", THINGS), ("Why do we need {}?", THINGS), ("Tell me about {}.", ANIMALS),
    ("What do {} eat?", ANIMALS), ("Where do {} live?", ANIMALS), ("How do {} sleep?", ANIMALS),
    ("Tell me one fact about {}.", ANIMALS), ("What do {} look like?", ANIMALS), ("Are {} friendly?", ANIMALS),
    ("How do I {}?", DEEDS), ("Can you tell me how to {}?", DEEDS), ("What is the best way to {}?", DEEDS),
    ("I want to {}. What should I do first?", DEEDS), ("{}", WHYS), ("{}", WHYS), ("{}", WHYS),
]

TALK = lines("""
    Hello!
    Hi there.
    Good morning!
    Good evening.
    How are you today?
    What do you like to do?
    Can you help me?
    What can you do?
    I am bored.
    I am tired.
    I am happy today.
    I am a little sad today.
    I cannot sleep.
    It is raining outside.
    Today is my birthday.
    I lost my favorite toy.
    I made a new friend today.
    I have a new puppy.
    I got a good mark at school.
    My friend is angry with me.
    I am afraid of the dark.
    Do you like stories?
    Do you like animals?
    What is your favorite color?
    What is your favorite animal?
    What is your favorite season?
    Let us play a game.
    Tell me something nice.
    Tell me a joke.
    Say something kind.
    What should we talk about?
    I want to learn something new.
""")

STORY_FOLLOW_UPS = lines("""
    What happened next?
    Tell me more.
    What happened the next day?
    What did they learn?
    Why did that happen?
    How did they feel?
    Can you give the story a name?
    Tell the end again in one sentence.
    What was the best part?
    Thank you! I liked that story.
    Who was the kindest one?
    Can you tell it in two sentences?
""")
QUESTION_FOLLOW_UPS = lines("""
    Can you tell me more?
    Why is that?
    Can you give me an example?
    Tell me one more thing about it.
    Can you say it in one sentence?
    How do you know that?
    Is that always true?
    Thank you! That helps.
    What else should I know?
    I did not understand. Can you say it more simply?
    Can children do that too?
    Who can help me with that?
""")
TALK_FOLLOW_UPS = lines("""
    Why do you think so?
    That is nice. What else?
    Thank you.
    What should I do now?
    Tell me more.
    Can you tell me a short story about that?
    I like that.
    Maybe you are right.
    What would you do?
    Good night!
    Goodbye!
""")

SYSTEMS = lines("""
    You are a friendly storyteller.
    You are a helpful assistant.
    You answer in simple words.
    You tell short stories for children.
    You are kind and patient.
    Answer briefly.
""")

# About one in six of a kind goes on for one to three more turns, and one in ten keeps a system message.
FOLLOW_UPS = {"story": STORY_FOLLOW_UPS, "scene": STORY_FOLLOW_UPS, "question": QUESTION_FOLLOW_UPS,
              "talk": TALK_FOLLOW_UPS}
GUIDES = {"story": STORY_GUIDE, "scene": SCENE_GUIDE, "question": QUESTION_GUIDE, "talk": TALK_GUIDE}
SHARES = {"story": 0.80, "scene": 0.06, "question": 0.11, "talk": 0.03}
MORE_TURNS = {"story": 0.12, "scene": 0.10, "question": 0.40, "talk": 0.60}


def with_article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def new_character(rng: Random) -> str:
    who = rng.random()
    if who < 0.6:
        animal = rng.choice(rng.choice(ALIKE))
        return f"{with_article(rng.choice(ADJECTIVES))} {animal} named {rng.choice(FEMALE + MALE)}"
    if who < 0.7:
        return f"{with_article(rng.choice(JOBS))} named {rng.choice(['Mr.', 'Mrs.'])} {rng.choice(SURNAMES)}"
    who, listed = rng.choice([("girl", FEMALE), ("boy", MALE)])
    return f"a {who} named {rng.choice(listed)}"


def character(rng: Random) -> str:
    return rng.choice(CHARACTERS) if rng.random() < 0.5 else new_character(rng)


def topic(rng: Random) -> str:
    return rng.choice(TOPICS) if rng.random() < 0.5 else with_article(f"{rng.choice(STATES)} {rng.choice(OBJECTS)}")


def first_turn(kind: str, rng: Random) -> str:
    if kind == "question":
        pattern, subjects = rng.choice(QUESTION_PATTERNS)
        return pattern.format(rng.choice(subjects))
    if kind == "talk":
        return rng.choice(TALK)
    parts = dict(character=character(rng), other=character(rng), topic=topic(rng), setting=rng.choice(SETTINGS))
    request = rng.choice(STORY_REQUESTS if kind == "story" else SCENE_REQUESTS).format(**parts)
    if rng.random() < 0.6:
        request += " " + rng.choice(STYLES)
    return request[0].upper() + request[1:]


def sample(rng: Random) -> Request:
    kind = rng.choices(list(SHARES), weights=SHARES.values())[0]
    turns = [first_turn(kind, rng)]
    if rng.random() < MORE_TURNS[kind]:
        turns += rng.sample(FOLLOW_UPS[kind], rng.choice([1, 1, 2, 3]))
    system = rng.choice(SYSTEMS) if rng.random() < 0.1 else ""
    return Request(kind, GUIDES[kind], turns, system)


HELD_OUT = lines("""
    Tell me a story about a hamster named Nibbles who finds a tiny ladder.
    Write a short story about a girl named Petra and a broken violin.
    Please tell me a bedtime story about a moose named Marvin on a frozen lake.
    Write a story about a beekeeper named Mr. Alder. It is about an empty jar.
    Tell me a story about a lighthouse keeper and a lost gull.
    I would like a story about a toad named Gilbert in a wet cellar.
    Write a story for a child about a lost umbrella, with a mole named Digby.
    Can you tell me a story about a noisy drum?
    Tell me a short story about a wobbly chair. It is about a carpenter named Ida.
    Write a story about a boy named Nico who meets a stork at the harbor.
    Write a short talk between a newt named Tilda and a heron about a cold bath.
    Write a story about two otters and a heavy log. Make it funny.
    What is a puddle?
    Tell me about otters.
    Why do owls hunt at night?
    How do I make a paper boat?
    What do moles eat?
    What is a windmill?
    I found a feather today.
    Good afternoon! What are you doing?
""")

# What topics.py asks for: in no list above, and never drawn by renaming.py.
UNSEEN_HEROES = words("""
    hamster, moose, gull, toad, mole, stork, newt, heron, otter, elk, baboon, crocodile, anteater, goldfish, unicorn,
    goblin, troll, tortoise, mammoth, beekeeper, carpenter, chef, clown, pirate
""")
UNSEEN_THINGS = words("""
    violin, jar, umbrella, chair, anchor, telescope, trampoline, backpack, helmet, camera, parachute, typewriter, saddle,
    hourglass, calendar, oar, toaster, quilt, wallet, zipper, microscope, windmill, jacket, lollipop
""")
