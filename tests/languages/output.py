"""What the two Python programs print: a line per step, each value with its type."""

import datetime
import json


def shown(value):
    if isinstance(value, dict):
        return {key: shown(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shown(member) for member in value]
    name = type(value).__name__
    if isinstance(value, datetime.datetime):
        return f"{name} {int(value.timestamp())}"
    if isinstance(value, bytes):
        return f"{name} {value.decode()}"
    return f"{name} {json.dumps(value) if isinstance(value, bool) else value}"


def step(name, **results):
    print(json.dumps({"step": name} | shown(results)), flush=True)
