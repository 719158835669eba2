"""Prompts: which tools to call in which order, and how to word uncertain results; the skill says the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from pydantic import Field

from nccl_inspect.extras.assistant.quotes import NOTE, cut_text

Log = Annotated[str, Field(description="The log of the job: a file, a folder or a glob.")]
WORDING = """\
How to word it:
- Start with the ten lines of 'brief', unchanged; then add your own words.
- Say 'certain', 'likely' or 'possible' as the finding does. Never make 'likely' sound proven; say what would confirm it
  ('confirm').
- The verdict 'unknown' means that the log does not show enough. Say what is missing ('not_judged') and how to get it.
- Name ranks, hosts, pids and lines exactly as the answers do. Do not guess what no answer says.
- 'action' says what to do about the job. Never propose to drain or cordon a host unless it is 'drain-host'.
- Propose commands; do not claim to have run them. Changes to a cluster are for people to decide."""
_HANG = """\
Find out why this NCCL job hangs or died: {log}

1. Call 'summarize' with it. If the input holds several jobs, ask which one, or take the worst and say so.
2. If the verdict is 'failed', call 'evidence' for the leading rule. It names the rank to blame, not the ranks that only
   wait or lost their connections ('root' is false for such effects). 'around' shows the log near a line.
3. If 'is_open' is true, the job may still be running: say so, and ask for the end of the log, or for what
   'nccl-inspect collect' gathers (stacks, flight recorder, RAS), before anybody kills it.
4. If ranks have no line in the log, say which ones, and that their own output (kubectl logs --previous) is needed.
5. If an error has no rule, call 'explain' with that line.
6. If the verdict is 'ok' or 'degraded', this log shows no hang in NCCL: say so, and name what would show a hang
   elsewhere (py-spy on the silent rank, the program's own log)."""
_SLOW = """\
Find out why this NCCL job is slow: {log}
{good}
1. Call 'summarize' with it. 'paths' in the answer shows which kinds of paths there are, and which are a fallback.
2. For each finding that is a root: call 'evidence' for cause, cost and all fixes.
3. Call 'paths' with verdict='fallback' (or slowest_first) to say which ranks and hosts are affected: all of them, or
   some that have something in common ('where').
4. If a good run is known, call 'diff' with it as 'before': a change that explains a finding is the best answer.
5. If the verdict is 'ok', every path in the log is as good as expected: say that the log shows no reason, and that the
   program, the data pipeline or a network shared with other jobs should be checked next. Do not invent a reason.
6. If 'platform' is null, ask for the machine type, and call again with 'platform'."""


def skill() -> str:
    """Return the skill for agents that run commands (``SKILL.md``)."""
    text = (Path(__file__).parent / "skill.md").read_text(encoding="utf-8")
    return text.replace("{wording}", WORDING).replace("{note}", NOTE)


def add(server: MCPServer) -> None:
    """Add the prompts to a server."""
    for name, title, words, function in (
        (
            "why-does-my-job-hang",
            "Why does my job hang?",
            "Find the rank that is to blame, and what to do.",
            _ask_about_hang,
        ),
        (
            "why-is-it-slow",
            "Why is it slow?",
            "Find the paths that should be faster, and why they are not.",
            _ask_about_speed,
        ),
    ):
        prompt: Callable[..., str] = function
        server.add_prompt(Prompt.from_function(prompt, name=name, title=title, description=words))


def _ask_about_hang(log: Log) -> str:
    return "\n\n".join((_HANG.format(log=cut_text(log)), WORDING, NOTE))


def _ask_about_speed(
    log: Log, good_log: Annotated[str, Field(description="The log of a run that was fast, if there is one.")] = ""
) -> str:
    good = f"A run that was fast: {cut_text(good_log)}\n" if good_log else ""
    return "\n\n".join((_SLOW.format(log=cut_text(log), good=good), WORDING, NOTE))
