"""Give the characters of a conversation other names, so that a model learns to take names from the request.

The lists of prompts.py hold some hundred characters. A small model that sees each name thousands of times learns
them by heart and falls back to them when it is asked about a name it has not met. So the corpus is packed in
several copies: in each, every name that a request asks for becomes another one in all turns, half of the time one
from a list and half of the time one made of syllables that no list holds. Copying the name is then all that helps.
An animal may become another of its kind in the same way (a weasel for a badger), where no irregular plural
stands in the way. Pronouns stay; a name follows the girl, boy or Mrs. before it.
`rename(messages, rng)` is a pure function of its arguments. No name or animal of HELD_OUT is ever drawn.
"""
import re
from random import Random

from prompts import HELD_OUT, lines, words

FEMALE = words("""
    Abby, Ada, Adele, Agnes, Alba, Alice, Alma, Amelia, Amy, Andrea, Angela, Anita, April, Aria, Astrid, Audrey, Ava,
    Beatrice, Bella, Beth, Betty, Bianca, Bonnie, Brenda, Bridget, Camila, Carla, Carmen, Carol, Cassie, Cecily, Celia,
    Chloe, Claire, Cleo, Cora, Dahlia, Dana, Daphne, Della, Diana, Dina, Dolly, Donna, Dora, Edie, Edith, Elena, Elise,
    Eliza, Elsa, Emily, Emma, Erica, Esme, Esther, Eva, Evelyn, Faith, Fatima, Flora, Frances, Freya, Gemma, Gina,
    Gloria, Grace, Greta, Gwen, Hana, Hannah, Harriet, Hattie, Heidi, Helen, Hilda, Hope, Imogen, Ines, Ingrid, Irene,
    Iris, Isabel, Isla, Jane, Janet, Jasmine, Jenny, Jill, Joan, Josie, Joy, Judy, Julia, June, Kate, Katie, Kira,
    Kitty, Lara, Laura, Layla, Lena, Lila, Linda, Lisa, Lottie, Louisa, Lucy, Lydia, Mabel, Maggie, Maria, Marta, Mary,
    Matilda, Maya, Megan, Mina, Mira, Mona, Nadia, Nancy, Naomi, Nell, Nellie, Nina, Noelle, Norma, Opal, Paula, Pearl,
    Phoebe, Poppy, Priya, Rachel, Rita, Robin, Rosalie, Roxy, Ruth, Sadie, Sally, Selma, Sofia, Sonia, Stella, Susie,
    Sylvia, Tamara, Tara, Tess, Thea, Tina, Trixie, Una, Ursula, Vera, Vicky, Viola, Wanda, Wendy, Winnie, Yara, Yasmin,
    Yuki, Zara, Zelda
""")
MALE = words("""
    Aaron, Abel, Adam, Ahmed, Alan, Albert, Alex, Alfie, Amir, Andy, Angus, Anton, Archie, Arlo, Arthur, Basil, Benji,
    Bertie, Bobby, Boris, Brian, Bruce, Caleb, Calvin, Carl, Casper, Cecil, Charlie, Chester, Chris, Clark, Clem, Colin,
    Conrad, Cyrus, Damon, Daniel, Darius, David, Declan, Dennis, Dexter, Dominic, Duncan, Dylan, Eddie, Eli, Elliot,
    Elmer, Emil, Eric, Ernest, Ethan, Evan, Felix, Floyd, Frank, Fred, Gabriel, Gareth, George, Gordon, Graham, Grant,
    Gregory, Harold, Harry, Harvey, Hector, Herbert, Hiro, Howard, Hugo, Ian, Igor, Isaac, Ivan, Jacob, Jamal, James,
    Jasper, Jerome, Jim, Joel, John, Jonah, Joseph, Juan, Julian, Karl, Keith, Kenji, Kevin, Kurt, Lars, Lewis, Liam,
    Lloyd, Louis, Lucas, Luke, Magnus, Malik, Marco, Mark, Martin, Matt, Maurice, Miles, Milo, Morris, Moses, Murphy,
    Nathan, Ned, Neil, Noah, Nolan, Norman, Oliver, Orson, Oswald, Owen, Pablo, Patrick, Paul, Percy, Peter, Philip,
    Quentin, Rafael, Ralph, Ravi, Raymond, Reggie, Remy, Rex, Richard, Robert, Rodney, Roger, Roland, Roman, Ron,
    Rory, Rufus, Rupert, Russell, Samir, Scott, Sean, Sidney, Silas, Simon, Stan, Stefan, Steve, Stuart, Sven, Teddy,
    Theo, Thomas, Toby, Tony, Travis, Tyler, Victor, Vince, Wallace, Warren, Wesley, Wilbur, Will, Winston, Yusuf, Zane
""")
STARTS = words("B, Bl, Br, C, Ch, D, Dr, F, Fl, G, Gr, H, J, K, L, M, N, P, Pr, Qu, R, S, Sh, Sn, T, Tr, V, W, Y, Z")
VOWELS = words("a, e, i, o, u, ee, oo, a, e, i, o")
MIDDLES = words("b, bb, d, dd, ff, g, k, l, ll, lm, m, mm, n, nd, nn, p, r, rl, rr, s, st, t, tt, v, z, zz")
ENDS = words("a, o, y, ie, el, en, er, in, is, ix, on, ow, us, um, le, et, an, ara, illo, ina, kin, bert, wick, ley")

ALIKE = [words(kind) for kind in lines("""
    rabbit, hedgehog, squirrel, badger, raccoon, fox, beaver, weasel, ferret, gopher, chipmunk, skunk, possum, marmot, vole
    kitten, puppy, lion cub, wolf cub, bear cub, tiger cub, fox cub, piglet, lamb, foal, fawn
    elephant, giraffe, zebra, rhino, hippo, camel, buffalo, llama, antelope, gorilla
    cow, pig, goat, donkey, pony, horse, mule, yak, hen, duck, turkey
    owl, crow, parrot, robin, sparrow, pigeon, raven, magpie, pelican, woodpecker, hawk, finch, swan
    seal, dolphin, whale, walrus, shark, turtle, manatee
    crab, snail, lobster, shrimp, worm, slug
    ant, bee, spider, ladybug, cricket, beetle, moth, wasp, grasshopper, caterpillar
    frog, lizard, salamander, gecko, snake
""")]
KIND = {animal: kind for kind in ALIKE for animal in kind}
OTHER_ANIMAL = 0.4                          # of the copies whose animal has others like it

TITLE = r"(?:(?:Mr\.|Mrs\.|Miss|Captain|Sir|Slow) )?"
NAMED = re.compile(rf"\bnamed {TITLE}([A-Z][a-z]+)(?: and ([A-Z][a-z]+))?")
SHE = re.compile(r"\b(?:girl|sisters|witch|princess|queen|grandmother|hen|cow)\b[^,.]* named|named (?:Mrs\.|Miss)")
HE = re.compile(r"\b(?:boy|brothers|wizard|prince|knight|king|fisherman|postman)\b[^,.]* named|named (?:Mr\.|Sir)")


def asked_names(request: str) -> list[str]:
    """The names a request gives its characters, in order, without titles."""
    return [name for pair in NAMED.findall(request) for name in pair if name]


UNSEEN = {word.lower() for request in HELD_OUT for word in re.findall(r"[A-Za-z]+", request)}


def made_up(rng: Random) -> str:
    """Two or three syllables: Brilly, Zotta, Snemmikin."""
    middle = rng.choice(VOWELS) + rng.choice(MIDDLES)
    if rng.random() < 0.3:
        middle += rng.choice("aeio") + rng.choice(MIDDLES)
    return rng.choice(STARTS) + middle + rng.choice(ENDS)


def draw_name(rng: Random, before: str, taken: str) -> str:
    """A name that fits the words before it and is not yet in the text `taken`, in lower case."""
    listed = FEMALE if SHE.search(before) else MALE if HE.search(before) else FEMALE + MALE
    while True:
        name = made_up(rng) if rng.random() < 0.5 else rng.choice(listed)
        if name.lower() not in UNSEEN and name.lower() not in taken:
            return name


def other_names(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    new = {}
    for message in messages:
        for match in NAMED.finditer(message["content"]) if message["role"] == "user" else ():
            before = message["content"][max(0, match.start() - 30):match.start(1)]
            for name in filter(None, match.groups()):
                if name not in new:
                    new[name] = draw_name(rng, before, taken)
                    taken += " " + new[name].lower()
    return new


def other_animals(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    new = {}
    for animal in re.findall(r"\b([a-z]+(?: cub)?) named\b", messages[0]["content"]):
        animal = animal if animal in KIND else animal.split()[-1]
        fresh = [a for a in KIND.get(animal, ()) if a not in taken and a not in new.values()]
        if fresh and rng.random() < OTHER_ANIMAL:
            new[animal] = rng.choice(fresh)
    return new


def swap_animal(text: str, old: str, new: str) -> str:
    """Singular, plural and capitalised, with its article where the two stand together."""
    def put(match):
        article, space, noun, s = match.groups()
        if article:
            article = article[0] + ("n" if new[0] in "aeiou" else "")
        return f"{article or ''}{space or ''}{new.capitalize() if noun[0].isupper() else new}{s}"
    return re.sub(rf"\b(?:([Aa]n?)( ))?({old})(s?)\b", put, text, flags=re.IGNORECASE)


def rename(messages: list[dict], rng: Random) -> list[dict]:
    taken = " ".join(m["content"] for m in messages).lower()
    names, animals = other_names(messages, taken, rng), other_animals(messages, taken, rng)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None
    renamed = []
    for message in messages:
        text = message["content"]
        for old, new in animals.items():
            text = swap_animal(text, old, new)
        if pattern:
            text = pattern.sub(lambda match: names[match[1]], text)
        renamed.append(dict(message, content=text))
    return renamed
