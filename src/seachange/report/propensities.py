"""What a report on propensities says, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table

from seachange.report.tables import shown_name, table

if TYPE_CHECKING:
    from seachange.log.calibration import PropensityReport

MOST_ACTIONS = 20
# Standard errors that chance hardly ever makes.
SURPRISING = 4.5


def propensities_told(report: PropensityReport) -> str:
    """The same in two sentences."""
    wrong = [a for a in report.actions if abs(a.inverse_mean - 1) > SURPRISING * max(a.inverse_error, 1e-12)]
    least = ", ".join(shown_name(a.action) for a in wrong[:3])
    doubt = f" They do not fit how often {least} was taken." if wrong else ""
    return (
        f"Propensities of {report.n_rounds:,} rounds are estimated, down to {report.least:.3g}; calibration error "
        f"{report.calibration_error:.4f}, by chance {report.error_by_chance:.4f}.{doubt} sc.propensity_report(log, "
        "sc.estimate_logging_probs(log)) tells them by action."
    )


def propensities_view(report: PropensityReport) -> Group:
    """Calibration in three tables: in all, by propensity, by action."""
    return Group(_summary(report), "", _by_propensity(report), "", _by_action(report))


def _summary(report: PropensityReport) -> Table:
    gain = report.marginal_log_loss - report.log_loss
    rows = [
        ("calibration error", f"{report.calibration_error:.4f} (by chance {report.error_by_chance:.4f})"),
        ("log-loss", f"{report.log_loss:.4f}, {abs(gain):.4f} {'below' if gain >= 0 else 'above'} that of frequencies"),
        ("smallest propensity", f"{report.least:.3g}"),
    ]
    return table(f"Propensities of {report.n_rounds:,} rounds", ("", ""), rows, n_text=2)


def _by_propensity(report: PropensityReport) -> Table:
    rows = [
        (f"{b.low:.4f} to {b.high:.4f}", f"{b.n_choices:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}",
         f"{b.observed_low:.4f} to {b.observed_high:.4f}")
        for b in report.bins
    ]  # fmt: skip
    return table("By propensity", ("propensity", "choices", "predicted", "taken", "95% interval"), rows)


def _by_action(report: PropensityReport) -> Table:
    rows = [
        (shown_name(a.action), f"{a.n_taken:,}", f"{a.predicted_taken:,.0f}",
         f"{a.inverse_mean:.3f} ± {a.inverse_error:.3f}")
        for a in report.actions[:MOST_ACTIONS]
    ]  # fmt: skip
    if len(report.actions) > MOST_ACTIONS:
        rows.append((f"… {len(report.actions) - MOST_ACTIONS} more", "", "", ""))
    return table("By action", ("action", "taken", "predicted", "mean of 1/p (1 expected)"), rows)
