"""Explains why a prefix cache missed. Start in `differences`; `agreement` compares that with providers."""

from lamina.diagnose.agreement import Agreement, AgreementRate, check_report, compare_causes
from lamina.diagnose.differences import diff
from lamina.diagnose.values import CAUSES, Difference

__all__ = ["CAUSES", "Agreement", "AgreementRate", "Difference", "check_report", "compare_causes", "diff"]
