"""A Ray cluster of two nodes of one processor each, on loopback alone: says its address, and ends with its input.

A node of Ray gives up on itself when its own agents, two Python programs, take longer than twenty seconds to start. Nothing
sets that time. On a machine so busy the cluster is tried three times, and then "busy" is said instead of an address.
"""

import sys

from ray.cluster_utils import Cluster

NODE = {
    "node_ip_address": "127.0.0.1",
    "num_cpus": 1,
    "object_store_memory": 80 * 1024 * 1024,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


def start():
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(**NODE)
    return cluster


for attempt in range(3):
    try:
        cluster = start()
        break
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
else:
    print("busy")
    sys.exit()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
