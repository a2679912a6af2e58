"""A worker of Celery: celery -A with_celery --broker=URL worker. See test_frameworks.py."""

import os
import signal
import time

from celery import Celery
from celery.exceptions import Reject
from celery.signals import worker_ready

app = Celery("with_celery")
app.conf.update(
    task_default_queue="work", task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True, worker_redirect_stdouts=False)


def say(word):
    print(word, int(time.time() * 1000), flush=True)


@app.task
def fails():
    say("fails")
    raise Reject("not now", requeue=True)


@app.task
def kills():
    say("kills")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def late():
    say("late")


@worker_ready.connect
def begin(**_):
    say("begun")
    fails.delay()
    kills.delay()
    late.apply_async(headers={"x-opt-delivery-time": int(time.time() * 1000) + 500})
