"""LinUCB."""

from dataclasses import dataclass

from seachange.deploy.rivals.linear import LinearRival


@dataclass(frozen=True, kw_only=True, eq=False)
class LinUCB(LinearRival):
    """Highest θ · f + β √(f' V⁻¹ f) (Abbasi-Yadkori, Pál and Szepesvári 2011)."""
