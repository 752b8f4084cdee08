"""Time BPR in other libraries, each in its own interpreter if one is given."""

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from unexposed.data.clicks import Clicks

IMPLICIT = """
import sys, numpy as np, scipy.sparse as sp
from implicit.bpr import BayesianPersonalizedRanking
users, items = np.load(sys.argv[1]), np.load(sys.argv[2])
shape = (int(sys.argv[3]), int(sys.argv[4]))
clicks = sp.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=shape)
seconds = []
model = BayesianPersonalizedRanking(factors=int(sys.argv[5]), iterations=8, num_threads=1)
model.fit(clicks, show_progress=False, callback=lambda epoch, elapsed, *_: seconds.append(elapsed))
print(len(users) / min(seconds))
"""

RECBOLE = """
import os, sys, time, numpy as np, torch
users, items = np.load(sys.argv[1]), np.load(sys.argv[2])
dim, negatives, batch = (int(a) for a in sys.argv[5:8])
os.makedirs("clicks")
with open("clicks/clicks.inter", "w") as file:
    file.write("user_id:token\\titem_id:token\\n")
    file.writelines(f"{u}\\t{i}\\n" for u, i in zip(users, items))
del sys.argv[1:]  # RecBole would read them as its settings
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.general_recommender import BPR
from recbole.trainer import Trainer
settings = {
    "data_path": os.getcwd(), "embedding_size": dim, "train_batch_size": batch, "use_gpu": False,
    "train_neg_sample_args": {
        "distribution": "uniform", "sample_num": negatives, "dynamic": False, "candidate_num": 0,
    },
    "eval_args": {
        "split": {"RS": [0.98, 0.01, 0.01]}, "order": "RO", "group_by": "user", "mode": "full",
    },
    "load_col": {"inter": ["user_id", "item_id"]}, "show_progress": False, "state": "ERROR",
}
config = Config(model="BPR", dataset="clicks", config_dict=settings)
torch.set_num_threads(1)
train, _, _ = data_preparation(config, create_dataset(config))
trainer = Trainer(config, BPR(config, train.dataset))
rates = []
for epoch in range(2):
    begin = time.process_time()
    trainer._train_epoch(train, epoch)
    rates.append(negatives * len(train.dataset) / (time.process_time() - begin))
print(max(rates))
"""


def samples_a_second(
    program: str, python: str | None, clicks: Clicks, *, dim: int, negatives: int, batch: int
) -> float | None:
    """What one of the two programs reaches on one core; its best epoch."""
    if python is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("users.npy", "items.npy")]
        for path, column in zip(paths, (clicks.users, clicks.items), strict=True):
            np.save(path, column)
        sizes = [str(n) for n in (clicks.n_users, clicks.n_items, dim, negatives, batch)]
        done = subprocess.run(
            [python, "-c", program, *paths, *sizes],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""},
        )
    if done.returncode != 0:
        print(f"{python}: {done.stderr.strip().splitlines()[-1]}")
        return None
    return float(done.stdout.split()[-1])
