from typing import NamedTuple
class Wish(NamedTuple):
    sort:str
    text:str
def rule_talks(n): return []
