"""Triton without tuning: every kernel runs with the N-th of its configurations (modulo their number) that fits the device.

    PYTHONPATH=tests/cuda/one_configuration TRITON_CONFIGURATION=0 attest check --battery --process 'python3 …'

A battery has many dimensions, and tuning begins anew for each. Every configuration has to be right, so any will do; the
verdict is about the one that ran. Python imports a module of this name by itself. (Triton 3.6.)
"""
import os


def run_one(tuner, *args, **kwargs):
    from triton.runtime.autotuner import OutOfResources, PTXASError

    tuner.nargs = named = dict(zip(tuner.arg_names, args))
    configurations = tuner.prune_configs(kwargs)
    first, refused = int(os.environ["TRITON_CONFIGURATION"]), None
    for i in range(len(configurations)):
        tuner.nargs = named
        chosen = tuner.best_config = configurations[(first + i) % len(configurations)]
        try:
            if chosen.pre_hook:
                chosen.pre_hook({**tuner.nargs, **kwargs, **chosen.all_kwargs()})
            return tuner.fn.run(*args, **kwargs, **chosen.all_kwargs())
        except (OutOfResources, PTXASError) as error:
            refused = error
        finally:
            tuner.nargs = None
    raise refused


if "TRITON_CONFIGURATION" in os.environ:
    try:
        from triton.runtime.autotuner import Autotuner
    except ImportError:
        pass
    else:
        Autotuner.run = run_one
