"""Pools of names, animals, things and trades: prompts.py draws characters from them, renaming.py exchanges them.

`made_up(rng)` builds a name from syllables; there are some hundred thousand. No name, animal, thing or trade
of prompts.HELD_OUT is in a list.
"""
from random import Random

FEMALE = """
    Abby Ada Adele Agnes Alba Alice Alma Amelia Amy Andrea Angela Anita April Aria Astrid Audrey Ava
    Beatrice Bella Beth Betty Bianca Bonnie Brenda Bridget Camila Carla Carmen Carol Cassie Cecily Celia
    Chloe Claire Cleo Cora Dahlia Dana Daphne Della Diana Dina Dolly Donna Dora Edie Edith Elena Elise
    Eliza Elsa Emily Emma Erica Esme Esther Eva Evelyn Faith Fatima Flora Frances Freya Gemma Gina
    Gloria Grace Greta Gwen Hana Hannah Harriet Hattie Heidi Helen Hilda Hope Imogen Ines Ingrid Irene
    Iris Isabel Isla Jane Janet Jasmine Jenny Jill Joan Josie Joy Judy Julia June Kate Katie Kira
    Kitty Lara Laura Layla Lena Lila Linda Lisa Lottie Louisa Lucy Lydia Mabel Maggie Maria Marta Mary
    Matilda Maya Megan Mina Mira Mona Nadia Nancy Naomi Nell Nellie Nina Noelle Norma Opal Paula Pearl
    Phoebe Poppy Priya Rachel Rita Robin Rosalie Roxy Ruth Sadie Sally Selma Sofia Sonia Stella Susie
    Sylvia Tamara Tara Tess Thea Tina Trixie Una Ursula Vera Vicky Viola Wanda Wendy Winnie Yara Yasmin
    Yuki Zara Zelda
""".split()
MALE = """
    Aaron Abel Adam Ahmed Alan Albert Alex Alfie Amir Andy Angus Anton Archie Arlo Arthur Basil Benji
    Bertie Bobby Boris Brian Bruce Caleb Calvin Carl Casper Cecil Charlie Chester Chris Clark Clem Colin
    Conrad Cyrus Damon Daniel Darius David Declan Dennis Dexter Dominic Duncan Dylan Eddie Eli Elliot
    Elmer Emil Eric Ernest Ethan Evan Felix Floyd Frank Fred Gabriel Gareth George Gordon Graham Grant
    Gregory Harold Harry Harvey Hector Herbert Hiro Howard Hugo Ian Igor Isaac Ivan Jacob Jamal James
    Jasper Jerome Jim Joel John Jonah Joseph Juan Julian Karl Keith Kenji Kevin Kurt Lars Lewis Liam
    Lloyd Louis Lucas Luke Magnus Malik Marco Mark Martin Matt Maurice Miles Milo Morris Moses Murphy
    Nathan Ned Neil Noah Nolan Norman Oliver Orson Oswald Owen Pablo Patrick Paul Percy Peter Philip
    Quentin Rafael Ralph Ravi Raymond Reggie Remy Rex Richard Robert Rodney Roger Roland Roman Ron
    Rory Rufus Rupert Russell Samir Scott Sean Sidney Silas Simon Stan Stefan Steve Stuart Sven Teddy
    Theo Thomas Toby Tony Travis Tyler Victor Vince Wallace Warren Wesley Wilbur Will Winston Yusuf Zane
""".split()
STARTS = "B Bl Br C Ch D Dr F Fl G Gr H J K L M N P Pr Qu R S Sh Sn T Tr V W Y Z".split()
VOWELS = "a e i o u ee oo a e i o".split()
MIDDLES = "b bb d dd ff g k l ll lm m mm n nd nn p r rl rr s st t tt v z zz".split()
ENDS = "a o y ie el en er in is ix on ow us um le et an ara illo ina kin bert wick ley".split()
SURNAMES = """
    Apple Ash Barley Beech Berry Birch Bloom Bridge Brook Brown Button Carter Clay Cook Cooper Crumb Dale Day Dover
    Fern Field Finch Fisher Flint Ford Fox Frost Gray Hall Hay Heath Hill Holly Honey Lake Lane Marsh Mason Mead Miller
    Moon Moss Nettle North Oak Page Peach Pepper Pine Potter Price Quill Reed Ridge Rivers Rose Sands Shaw Short Snow
    Stone Thorn Turner Wade Wells West White Wood Young
""".split()


def kinds(text: str) -> list[list[str]]:
    """One list a line, its entries between commas; a backslash goes on with the line."""
    text = text.replace("\\\n", "")
    return [[word.strip() for word in line.split(",")] for line in text.strip().splitlines()]


# Words of a line can stand for each other in a story; their plurals are regular.
ALIKE = kinds("""
    rabbit, hedgehog, squirrel, badger, raccoon, fox, beaver, weasel, ferret, gopher, chipmunk, skunk, possum, marmot, vole
    kitten, puppy, lion cub, wolf cub, bear cub, tiger cub, fox cub, piglet, lamb, foal, fawn
    elephant, giraffe, zebra, rhino, hippo, camel, buffalo, llama, antelope, gorilla
    cow, pig, goat, donkey, pony, horse, mule, yak, hen, duck, turkey
    owl, crow, parrot, robin, sparrow, pigeon, raven, magpie, pelican, woodpecker, hawk, finch, swan
    seal, dolphin, whale, walrus, shark, turtle, manatee
    crab, snail, lobster, shrimp, worm, slug
    ant, bee, spider, ladybug, cricket, beetle, moth, wasp, grasshopper, caterpillar
    frog, lizard, salamander, gecko, snake
""")

# Animals and things that no request names: renaming alone puts them in.
RARE_ANIMALS = """
    alpaca armadillo bison bobcat bulldog canary cardinal centipede chameleon cheetah cockatoo condor cougar coyote crane
    cuckoo dingo dormouse dragonfly eagle earwig eel egret emu falcon flamingo gazelle gerbil gibbon groundhog hare hornet
    hyena ibex iguana jackal jaguar jay jellyfish kestrel kingfisher kiwi koala lark lemming lemur leopard lynx macaw mallard
    mantis marten meerkat mink mongoose muskrat narwhal nightingale ocelot okapi oriole osprey ostrich
    oyster panda pangolin panther partridge peacock pheasant platypus polecat poodle porcupine puffin puma python quail quokka
    rat reindeer rooster scorpion shrew sloth starling stingray swallow tadpole tapir termite terrier thrush toucan vulture
    wallaby warthog wombat wren
""".split()
RARE_THINGS = """
    abacus almanac amulet armchair bagpipe bandage banner barometer basin bathtub beanbag birdcage blender bobsled bookcase
    boomerang bouquet briefcase bugle bulldozer cactus candlestick cannon catapult cauldron chandelier chessboard clarinet
    coconut comb cradle crib crowbar cymbal dartboard diary dinghy domino doorbell doorknob doormat dresser easel envelope
    faucet figurine flashlight flowerpot footstool funnel gavel glider globe gong hairbrush hammock handbag handkerchief
    harmonica harness haystack helicopter horseshoe inkwell jukebox kaleidoscope kayak keyboard kimono lasso lawnmower lever
    loom lute mallet mandolin manuscript megaphone metronome mop napkin notebook nutcracker orchid paddle padlock pamphlet
    parasol parcel passport pendant pendulum periscope photograph pinwheel plank plate plow postcard poster prism propeller
    pulley puppet quill racket radio rocket rucksack rug ruler scepter scroll seesaw shield signpost skillet snorkel spyglass
    stamp stepladder stove sundial surfboard sword tablecloth tambourine tapestry teacup telegram thermos thimble tiara
    ticket toothbrush torch tricycle trunk tunic turban unicycle veil viola volleyball wand wardrobe washtub waterwheel
    weathervane wheelbarrow whisk wig zither
""".split()
THINGS = kinds("""
    bell, whistle, flute, trumpet, guitar, piano, harp, banjo, tuba, accordion, cello, oboe, fiddle, organ, trombone, ukulele
    shoe, sock, hat, coat, scarf, glove, mitten, sweater, boot, cape, mask, ribbon, cap, apron, slipper, sandal, vest, bonnet
    box, bag, basket, bottle, bucket, cup, pot, kettle, teapot, mug, jug, barrel, crate, vase, bowl, pitcher, chest, suitcase
    broom, shovel, hammer, needle, brush, pencil, spoon, rope, net, rake, saw, axe, spade, ladle, chisel, pitchfork, wrench
    bed, table, door, window, gate, pillow, lamp, mirror, clock, stool, bench, shelf, desk, cupboard, sofa, carpet, curtain
    ball, kite, doll, robot, sled, swing, slide, puzzle, balloon, marble, yo-yo, teddy, rattle, skateboard, scooter, hoop
    boat, train, bicycle, wagon, canoe, raft, cart, tractor, tram, rowboat, carriage, ferry, truck, caravan
    pumpkin, apple, pear, carrot, onion, melon, plum, turnip, lemon, radish, apricot, walnut, mushroom, cabbage, beet
    cake, pie, cookie, pancake, sandwich, waffle, muffin, biscuit, pudding, pretzel, dumpling, tart, bun, doughnut
    crown, ring, necklace, medal, coin, key, watch, crystal, brooch, bracelet, locket, diamond, emerald, goblet, trophy
    shell, pebble, stone, nest, leaf, flower, rose, seed, acorn, pinecone, twig, tulip, daisy, thistle, fern, chestnut
    fence, bridge, well, chimney, roof, wall, tent, statue, fountain, tower, staircase, hut, mailbox, kennel
""")
TRADES = kinds("""
    farmer, baker, gardener, painter, teacher, shoemaker, sailor, clockmaker, tailor, miller, doctor, cook, driver, blacksmith, \
    librarian, potter, weaver, nurse, shepherd, builder, inventor, singer, dancer, pilot, plumber, barber, grocer, fisherman, \
    postman, florist, dentist, hunter, jeweler, juggler, butcher, cobbler, diver, jester, judge, locksmith, magician, mason, \
    milkman, miner, musician, optician, poet, printer, ranger, saddler, scribe, sculptor, surgeon, trader, waiter, acrobat, \
    archer, astronomer, banker, chemist, coachman, conductor, cowboy, drummer, engineer, explorer, falconer, gatekeeper, \
    glassblower, goldsmith, hermit, innkeeper, janitor, lumberjack, mayor, mechanic, merchant, monk, peddler, piper, porter, \
    referee, sheriff, soldier, stonecutter, swimmer, watchman, woodcutter, zookeeper
""")


def made_up(rng: Random) -> str:
    """Two or three syllables: Brilly, Zotta, Snemmikin."""
    middle = rng.choice(VOWELS) + rng.choice(MIDDLES)
    if rng.random() < 0.3:
        middle += rng.choice("aeio") + rng.choice(MIDDLES)
    return rng.choice(STARTS) + middle + rng.choice(ENDS)
