"""Tasks that never succeed, and a worker that gives none of them up: celery -A with_celery worker. It prints a word each time it begins one."""

import os
import signal

from celery import Celery
from celery.exceptions import Reject
from celery.signals import worker_ready

app = Celery("with_celery", broker=os.environ["DLX_TEST_URL"])
app.conf.update(
    task_default_queue="work", task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True, worker_redirect_stdouts=False)


@app.task
def refuses():
    print("refuses", flush=True)
    raise Reject("not now", requeue=True)


@app.task
def kills():
    print("kills", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@worker_ready.connect
def begin(**_):
    refuses.delay()
    kills.delay()
