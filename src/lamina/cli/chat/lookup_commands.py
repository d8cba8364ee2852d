"""Commands of the chat that look elsewhere: /search, /memory and its kin, and saved prompts."""

from __future__ import annotations

from anyio import to_thread

from lamina.cli.chat.command import Command, require
from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.maps import shorten
from lamina.cli.chat.prompts import fill_prompt, list_prompts, save_prompt
from lamina.cli.chat.remembering import change_fact, list_facts, remember_fact

NO_FACTS = 'nothing is remembered; begin a line with "remember that", or use /remember'
NO_PROMPTS = "no prompt is saved; /save NAME TEXT saves one"


async def _search(chat: TerminalChat, query: str) -> None:
    """Show the passages of the workspace and of old chats that answer a query best, with numbers."""
    require(query, command="/search", what="words", hint="write what to look for after /search")
    chat.screen.wait("reading the workspace and the chats")
    passages, notes = await chat.searched.find(query)
    chat.screen.end()
    chat.passages = passages
    chat.remarks(notes)
    if not passages:
        chat.screen.show("nothing was found")
        return
    width = chat.screen.width
    lines = []
    for number, passage in enumerate(passages, 1):
        title = f"{number:>2}  {passage.sort} {passage.name}"
        if passage.place:
            title += f", {passage.place}"
        lines.append(shorten(title, width))
        lines.append(shorten(f"    {' '.join(passage.text.split())}", width))
    lines.append("/attach N sends one with your next message; /open NAME goes on with a chat")
    chat.screen.show("\n".join(lines))


async def _remember(chat: TerminalChat, text: str) -> None:
    require(text, command="/remember", what="a fact", hint="for instance: /remember I write British English")
    number = await remember_fact(chat.memory, text, source=chat.session.conversation)
    chat.screen.show(f"remembered as {number}, for every chat")


async def _memory(chat: TerminalChat, words: str) -> None:
    """Show what is remembered, or change one fact."""
    if not words:
        chat.screen.show(list_facts(await chat.memory.facts()) or NO_FACTS)
        return
    number, _, text = words.partition(" ")
    require(text, command="/memory", what="a number and a text", hint="/memory 2 The new text")
    await change_fact(chat.memory, number, text.strip(), source=chat.session.conversation)
    chat.screen.show(f"{number} is changed")


async def _forget(chat: TerminalChat, number: str) -> None:
    require(number, command="/forget", what="a number", hint="/memory lists them")
    fact = await chat.memory.forget(number, source=chat.session.conversation)
    chat.screen.show(f"forgotten: {fact.text}")


async def _prompt(chat: TerminalChat, words: str) -> None:
    """Send a saved prompt, with the rest of the line in it; or list those that are saved."""
    if not words:
        prompts = await to_thread.run_sync(list_prompts)
        lines = [
            shorten(f"{name}: {' '.join(text.split())}", chat.screen.width) for name, text in prompts.items()
        ]
        chat.screen.show("\n".join(lines) or NO_PROMPTS)
        return
    name, _, rest = words.partition(" ")
    await chat.say(await to_thread.run_sync(fill_prompt, name, rest.strip()))


async def _save(chat: TerminalChat, words: str) -> None:
    """Save a prompt: the given text, or else the last message."""
    require(words, command="/save", what="a name and a text", hint="/save review Look for mistakes in {}")
    name, _, text = words.partition(" ")
    path = await to_thread.run_sync(save_prompt, name, text.strip() or chat.last_words())
    chat.screen.show(f"saved in {path}; /prompt {name} sends it")


LOOKUP_COMMANDS = {
    "search": Command("WORDS", "find passages in the workspace and in old chats", _search),
    "remember": Command("FACT", "keep a fact for every chat", _remember),
    "memory": Command("[N TEXT]", "what is remembered; with N TEXT, change it", _memory),
    "forget": Command("N", "forget a fact", _forget),
    "prompt": Command("[NAME]", "send a saved prompt, with the words after its name in it", _prompt),
    "save": Command("NAME [TEXT]", "save a prompt: TEXT, or your last message", _save),
}
