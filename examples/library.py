"""The shortest use from Python: search, look at the best version, walk through the tree, save the run.

python examples/library.py [TASK] [EVALUATIONS] [FOLDER]
"""

from __future__ import annotations

import sys

import networkx as nx

from mtmc.search import search


def main(task: str = "softmax_gelu", evaluations: str = "12", folder: str = "") -> None:
    result = search(task, budget=int(evaluations), batch=2)

    best, root = result.best, result.root
    print(f"root {root.runtime_ms:.3f} ms, best {best.runtime_ms:.3f} ms ({best.runtime_kind}): {best.speedup:.2f}x")

    print("how it got there:")
    for node in result.tree.path(best.node_id)[1:]:
        print(f"  {node.action.sentence}: {result.tree.speedup(node.id):.2f}x")

    graph = result.tree.to_networkx()
    failed = [node for node, status in graph.nodes(data="status") if status != "ok"]
    print(f"{graph.number_of_nodes()} versions, {len(failed)} failed, depth {nx.dag_longest_path_length(graph)}")

    if folder:
        print(f"saved in {result.save(folder)}: best.py, tree.html, tree.json, tree.graphml, ...")


if __name__ == "__main__":
    main(*sys.argv[1:])
