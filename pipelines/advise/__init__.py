"""Advice on layouts: diagnosis of one compilation, entry layouts, and a search by the TPU's compiler."""

from xlarank.pipelines.advise.advice import Advice, AdviceSettings, Applied, advise, apply_configuration

__all__ = ["Advice", "AdviceSettings", "Applied", "advise", "apply_configuration"]
