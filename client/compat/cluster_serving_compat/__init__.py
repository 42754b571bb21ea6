"""Client of Cluster Serving for programs of Analytics Zoo and BigDL: `zoo.serving` and `bigdl.serving` re-export it."""
