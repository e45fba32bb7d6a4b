"""Cross-validation of an estimator in a scikit-learn pipeline."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ridgeline import RidgelineClassifier

x, y = load_breast_cancer(return_X_y=True)
estimator = make_pipeline(StandardScaler(), RidgelineClassifier((32,), epochs=20, random_state=0, device="cpu", threads=1))
scores = cross_val_score(estimator, x, y, cv=5)
print(f"accuracy {scores.mean():.3f} +- {scores.std():.3f}")
assert scores.mean() > 0.93
