"""Prompts: which tools to ask in which order, and how to word what is not sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from pydantic import Field

from nccl_inspect.assistant.quotes import NOTE, shown

Log = Annotated[str, Field(description="The log of the job: a file, a folder or a glob.")]
_WORDING = """\
How to word it:
- Give the ten lines of 'brief' first, unchanged; then what you add.
- Say 'certain', 'likely' or 'possible' as the finding does. Never make 'likely' sound proven; say what 'confirm' asks.
- The verdict 'unknown' means that the log does not tell. Say what is missing ('not_judged') and how to get it.
- Name ranks, hosts, pids and lines as the answers have them. Do not guess what no answer says.
- Propose commands; do not claim to have run them. What changes a cluster is for people to decide."""
_HANG = """\
Find out why this NCCL job hangs or died: {log}

1. Call 'summarize' with it. If the input holds several jobs, ask which one, or take the worst and say so.
2. If the verdict is 'failed': call 'evidence' for the leading rule. It names the rank that is to blame, not those that
   only wait or lost their connections ('root' is false for such effects). 'around' shows the log near a line.
3. If 'is_open' is true, the job may still run: say so, and ask for the end of the log, or for what
   'nccl-inspect collect' gathers (stacks, flight recorder, RAS) before anybody kills it.
4. If ranks have no line in the log, say which ones, and that their own output (kubectl logs --previous) is needed.
5. If an error has no rule, call 'explain' with that line.
6. If the verdict is 'ok' or 'degraded', NCCL did not hang by this log: say so, and name what would show a hang
   elsewhere (py-spy on the rank that is silent, the program's own log)."""
_SLOW = """\
Find out why this NCCL job is slow: {log}
{good}
1. Call 'summarize' with it. 'paths' in the answer shows which kinds of paths there are, and which are a fallback.
2. For each finding that is a root: call 'evidence' for cause, cost and all fixes.
3. Call 'paths' with verdict='fallback' (or slowest_first) to say which ranks and hosts are concerned: all of them, or
   some that have something in common ('where').
4. If a good run is known, call 'diff' with it as 'before': a change that explains a finding is the best answer.
5. If the verdict is 'ok', every path in the log is as good as expected: say that the log shows no reason, and that the
   program, the data pipeline or a network that is loaded by others is next. Do not invent one.
6. If 'platform' is null, ask which machine type it is, and call again with 'platform'."""


def add(server: MCPServer) -> None:
    """Offer the prompts.

    Args:
        server: is given them.
    """
    for name, title, words, function in (
        ("why-does-my-job-hang", "Why does my job hang?", "Finds the rank that is to blame, and what to do.", _hang),
        ("why-is-it-slow", "Why is it slow?", "Finds the paths that should be faster, and why they are not.", _slow),
    ):
        prompt: Callable[..., str] = function
        server.add_prompt(Prompt.from_function(prompt, name=name, title=title, description=words))


def _hang(log: Log) -> str:
    return "\n\n".join((_HANG.format(log=shown(log)), _WORDING, NOTE))


def _slow(
    log: Log, good_log: Annotated[str, Field(description="The log of a run that was fast, if there is one.")] = ""
) -> str:
    good = f"A run that was fast: {shown(good_log)}\n" if good_log else ""
    return "\n\n".join((_SLOW.format(log=shown(log), good=good), _WORDING, NOTE))
