"""All commands, in the order of ``seachange --help``. A new command is one module and one line here."""

from seachange.cli.app import app
from seachange.cli.arena import arena
from seachange.cli.bounds import bounds
from seachange.cli.check import check
from seachange.cli.demo import demo
from seachange.cli.evaluate import evaluate
from seachange.cli.inspect import inspect
from seachange.cli.learn import learn
from seachange.cli.replicate import replicate
from seachange.cli.report import report
from seachange.cli.states import states

for command in (demo, check, learn, inspect, states, evaluate, bounds, report, arena):
    app.command()(command)
app.add_typer(replicate, name="replicate")

__all__ = ["app"]
