"""`from mini_bert.metrics import spearman`; `python metrics.py --test` checks each (evaluation/metrics.py)."""

from mini_bert.evaluation.metrics import (
    AnswerScores,
    Bin,
    Calibration,
    EntityScores,
    Scores,
    accuracy,
    answer_f1,
    answer_scores,
    brier,
    calibrated,
    calibration,
    confusion_matrix,
    entities,
    entity_scores,
    exact_match,
    is_entity_tag,
    matthews,
    mean_ranks,
    normalized,
    pearson,
    per_class,
    precision_recall_f1,
    reliability,
    spearman,
)
from mini_bert.evaluation.vector_metrics import mean_cosine, nearest, partition_ratio

__all__ = [
    "AnswerScores",
    "Bin",
    "Calibration",
    "EntityScores",
    "Scores",
    "accuracy",
    "answer_f1",
    "answer_scores",
    "brier",
    "calibrated",
    "calibration",
    "confusion_matrix",
    "entities",
    "entity_scores",
    "exact_match",
    "is_entity_tag",
    "matthews",
    "mean_cosine",
    "mean_ranks",
    "nearest",
    "normalized",
    "partition_ratio",
    "pearson",
    "per_class",
    "precision_recall_f1",
    "reliability",
    "spearman",
]

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("metrics")
