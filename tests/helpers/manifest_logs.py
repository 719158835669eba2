"""Logs with manifests beside them."""

from __future__ import annotations

from repository import TESTS

BESIDE = TESTS / "data" / "beside"
SOUND = (BESIDE / "pods-sound" / "pods.yaml").read_text()
LINE = "llama-3-8b-node-0-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
TEMPLATE = """# the training job
apiVersion: {api}
kind: {kind}
metadata:
  name: llama-3-8b-node
spec:
  replicas: 2
  template:
    metadata:
      labels: {{app: llama}}
    spec:
      containers:
        - name: main
          image: train:1
          env:
            - {{name: NCCL_P2P_DISABLE, value: "1"}}
          resources:
            limits:
              nvidia.com/gpu: 8
"""


HEAD = "apiVersion: v1\nkind: Pod\n"
