"""All tiny checkpoints that there are."""

from tests.tiny_dense import DENSE
from tests.tiny_hybrids import HYBRIDS

FAMILIES = (DENSE, HYBRIDS)
FAMILY_OF = {name: family for family in FAMILIES for name in family.configs}
