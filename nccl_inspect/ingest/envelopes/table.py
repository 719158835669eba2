"""The envelopes that launchers, collectors, clouds and editors put around lines: each with samples of what it states.

Prefixes precede a line; a whole-line envelope holds one line of a log, or several, for ``LINE`` in its
samples. Some collectors cut long lines: a part states that it continues in the next one of the same stream.
"""

import re

from nccl_inspect.ingest.envelopes import DAY, ISO, WORD, Prefix, Stated, Whole
from nccl_inspect.ingest.envelopes.readers import (
    CSV,
    CSV_FIRST,
    FLUENT_BIT,
    JSON,
    JSON_FIRST,
    LOGFMT,
    LOGFMT_FIRST,
    QUOTED,
    QUOTED_FIRST,
    TAGGED,
    TAGGED_FIRST,
    read_csv,
    read_json,
    read_led_json,
    read_logfmt,
    read_quoted,
)

PREFIXES = {
    # Markdown: a line in backticks, maybe one of a list, as it is pasted into issues and chats.
    "backticks": Prefix(
        b"`-*+>",
        re.compile(rb"(?:[-*+>] )?`{1,3}(?!`)"),
        {b"`": Stated(), b"- `": Stated()},
        trailer=(b"`", re.compile(rb"`{1,3} *$")),
    ),
    # Determined AI (``[rank=0] || ``) and Lightning (``[rank: 0] ``): the rank before every line.
    "bracketed_rank": Prefix(
        b"[",
        re.compile(rb"\[rank(?:=|: )(?P<rank>\d{1,7})\] (?:\|\| )?"),
        {b"[rank=0] || ": Stated(rank=0), b"[rank=12] ": Stated(rank=12), b"[rank: 3] ": Stated(rank=3)},
    ),
    # A time in brackets before every line: Jenkins, CircleCI, AzureML, Determined AI.
    "bracketed_time": Prefix(
        b"[",
        re.compile(rb"\[(?P<time>" + ISO + rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\] ?"),
        {
            b"[2026-11-20T23:13:07.071Z] ": Stated(time="2026-11-20T23:13:07.071Z"),
            b"[2026-11-20T23:13:07.071868] ": Stated(time="2026-11-20T23:13:07.071868"),
            b"[23:13:07] ": Stated(time="23:13:07"),
        },
    ),
    # A date and time that launchers, ``ts`` or a syslog without tag put in front.
    "clock": Prefix(
        WORD,
        re.compile(
            rb"(?P<time>" + DAY + rb"(?:\.\d{1,6})?|" + ISO + rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{10}\.\d{1,9}):? "
        ),
        {
            b"Nov 20 23:13:07 ": Stated(time="Nov 20 23:13:07"),
            b"2026-11-20 23:13:07,071 ": Stated(time="2026-11-20 23:13:07,071"),
            b"1795216387.071868 ": Stated(time="1795216387.071868"),
            b"23:13:07.071 ": Stated(time="23:13:07.071"),
        },
    ),
    # CloudWatch: tables of Logs Insights and of the console, with a time in the first column.
    "cloudwatch_table": Prefix(
        b"|",
        re.compile(rb"\|{1,2}(?: \d{1,6} +\|)? +(?P<time>" + ISO + rb"|\d{13}) +\| +"),
        {
            b"| 2026-11-20 23:13:07.071 | ": Stated(time="2026-11-20 23:13:07.071"),
            b"| 1795216387071 | ": Stated(time="1795216387071"),
            b"|  1795216387071 |  ": Stated(time="1795216387071"),
        },
        trailer=(b"|", re.compile(rb"(?<! ) +\|{1,2}$")),
    ),
    # CloudWatch: ``aws logs tail`` (time and stream), and text that was copied from the console (time and a tab).
    "cloudwatch_tail": Prefix(
        b"0123456789",
        re.compile(rb"(?P<time>" + ISO + rb"|\d{13})(?:\t| (?P<label>[\w.$-]+/[^\s\[\]:]+) )"),
        {
            b"2026-11-20T23:13:07.071000+00:00 train/main/4f1c ": Stated(
                time="2026-11-20T23:13:07.071000+00:00", label="train/main/4f1c"
            ),
            b"2026-11-20T23:13:07.071Z\t": Stated(time="2026-11-20T23:13:07.071Z"),
            b"1795216387071\t": Stated(time="1795216387071"),
        },
    ),
    # CloudWatch: ``aws logs get-log-events`` and ``filter-log-events`` with ``--output text``.
    "cloudwatch_text": Prefix(
        b"E",
        re.compile(rb"EVENTS\t(?P<id>\d{40,60}\t)?(?P<time>\d{13})\t(?(id)(?P<label>[^\t]{1,512})\t)"),
        {
            b"EVENTS\t1795216387071\t": Stated(time="1795216387071"),
            b"EVENTS\t3113262927494551977980532285720373558671445464\t1795216387071\ttrain/main/4f1c\t": Stated(
                time="1795216387071", label="train/main/4f1c"
            ),
        },
        trailer=(b"\t", re.compile(rb"\t\d{13}$")),
    ),
    # Container runtimes (CRI: containerd, CRI-O), as in ``/var/log/pods``: time, stream and whether the line continues.
    "cri": Prefix(
        b"0123456789",
        re.compile(rb"(?P<time>" + ISO + rb") (?P<stream>stdout|stderr) (?:F|(?P<partial>P))(?::[^ ]*)? "),
        {
            b"2026-11-20T23:13:07.071868123Z stdout F ": Stated(time="2026-11-20T23:13:07.071868123Z", stream="stdout"),
            b"2026-11-20T23:13:07.071868123+01:00 stdout P ": Stated(
                time="2026-11-20T23:13:07.071868123+01:00", stream="stdout", partial=True
            ),
        },
    ),
    # Determined AI (``det task logs``): time, container and rank before every line.
    "determined": Prefix(
        b"[",
        re.compile(
            rb"\[(?P<time>" + ISO + rb")\] (?P<label>[0-9a-f]{8}) (?:\[rank=(?P<rank>\d{1,7})\] )?\|\| (?:[A-Z]+: )?"
        ),
        {
            b"[2026-11-20T23:13:07.071868Z] 1a2b3c4d [rank=3] || ": Stated(
                time="2026-11-20T23:13:07.071868Z", label="1a2b3c4d", rank=3
            ),
            b"[2026-11-20T23:13:07Z] 1a2b3c4d || INFO: ": Stated(time="2026-11-20T23:13:07Z", label="1a2b3c4d"),
        },
    ),
    # A plus or minus before every line, more of a merge: a log in a diff or a review.
    "diff_mark": Prefix(b"+-", re.compile(rb"[+-]+(?=[^+-])"), {b"+": Stated(), b"-": Stated(), b"++": Stated()}),
    # ``docker compose``: the container and a bar before every line.
    "docker_compose": Prefix(
        b"abcdefghijklmnopqrstuvwxyz0123456789",
        re.compile(rb"(?P<label>[a-z][\w.-]{0,80}) +\| "),
        {b"trainer-1  | ": Stated(label="trainer-1"), b"worker-0 | ": Stated(label="worker-0")},
    ),
    # ``gh run view --log``: job, step and time before every line, with tabs between.
    "github_run": Prefix(
        WORD,
        re.compile(rb"(?P<label>[^\t\n\x22]{1,120})\t[^\t\n]{1,120}\t(?:\xef\xbb\xbf)?(?P<time>" + ISO + rb") "),
        {
            b"train\tRun the job\t2026-11-20T23:13:07.0718681Z ": Stated(
                time="2026-11-20T23:13:07.0718681Z", label="train"
            )
        },
    ),
    # ``grep -H``: the file before every line.
    "grep_name": Prefix(
        WORD + b"./",
        re.compile(rb"(?P<label>[\w./@=+-]{0,200}(?:/[\w.@=+-]+|\.(?:log|txt|out|err))):"),
        {b"job.log:": Stated(label="job.log"), b"logs/rank0/stdout:": Stated(label="logs/rank0/stdout")},
    ),
    # ``journalctl`` and syslog files (RFC 3164 without its priority): time, node and unit before every line.
    "journald": Prefix(
        WORD,
        re.compile(
            rb"(?P<time>" + DAY + rb"(?:\.\d{1,6})?|" + ISO + rb") "
            rb"(?P<node>[\w.-]+) (?P<label>[\w./@\\-]+)(?:\[\d+\])?: "
        ),
        {
            b"Nov 20 23:13:07 node-1 train.service[123]: ": Stated(
                time="Nov 20 23:13:07", label="train.service@node-1"
            ),
            b"Nov  2 03:13:07.071868 node-1 python3: ": Stated(time="Nov  2 03:13:07.071868", label="python3@node-1"),
            b"2026-11-20T23:13:07+0100 node-1 train[123]: ": Stated(
                time="2026-11-20T23:13:07+0100", label="train@node-1"
            ),
        },
    ),
    # ``journalctl -o export`` and ``-o verbose``: each field of an entry on a line of its own.
    "journald_fields": Prefix(
        b" M", re.compile(rb" {0,8}MESSAGE="), {b"MESSAGE=": Stated(), b"    MESSAGE=": Stated()}
    ),
    # k9s: logs that were copied with the border of the window.
    "k9s_border": Prefix(
        b"\xe2|",
        re.compile(rb"(?:\xe2\x94\x82|\xe2\x95\x91|\xe2\x94\x83|\|) ?"),
        {b"\xe2\x94\x82 ": Stated(), b"\xe2\x94\x82": Stated(), b"| ": Stated()},
        trailer=(b"\xe2", re.compile(rb"(?<! ) *(?:\xe2\x94\x82|\xe2\x95\x91|\xe2\x94\x83) *$")),
    ),
    # ``kubectl logs --prefix``: ``[pod/NAME/CONTAINER] `` before every line; kubetail: ``[NAME CONTAINER] ``.
    "kubectl_prefix": Prefix(
        b"[",
        re.compile(rb"\[(?P<label>pod/[^\]\s]++|[a-z0-9][a-z0-9.]*+-[a-z0-9.-]++(?: [a-z0-9-]++)?)\] "),
        {
            b"[pod/llama-3-8b-node-0-0/trainer] ": Stated(label="pod/llama-3-8b-node-0-0/trainer"),
            b"[llama-node-0-0 trainer] ": Stated(label="llama-node-0-0 trainer"),
        },
    ),
    # A time and a blank before every line: ``kubectl logs --timestamps``, ``docker logs -t``, GitHub Actions.
    "kubectl_timestamps": Prefix(
        b"0123456789",
        re.compile(rb"(?P<time>" + ISO + rb")[ \t]"),
        {
            b"2026-11-20T23:13:07.071868123Z ": Stated(time="2026-11-20T23:13:07.071868123Z"),
            b"2026-11-20T23:13:07+01:00 ": Stated(time="2026-11-20T23:13:07+01:00"),
        },
    ),
    # Numbers of editors, ``cat -n`` and ``grep -n``; Slurm's ``%t:`` looks alike, so that no rank is read from it.
    "line_numbers": Prefix(
        b" 0123456789",
        re.compile(rb" {0,8}\d{1,9}(?:\xe2\x86\x92|\t|:(?! )| ?\xe2\x94\x82 ?| ?\| ?)"),
        {b"  12\xe2\x86\x92": Stated(), b"12:": Stated(), b"    12\t": Stated(), b"12 | ": Stated()},
    ),
    # Loki's ``logcli``: time and stream labels before every line.
    "logcli": Prefix(
        b"0123456789{",
        re.compile(
            rb"(?:(?P<time>" + ISO + rb")[ \t]+)?"
            rb"\{(?:[^{}]*?\b(?:pod|pod_name|instance)=\"(?P<label>[^\"]*)\")?[^{}]*\}[ \t]+"
        ),
        {
            b'2026-11-20T23:13:07Z {app="llama", pod="llama-0"} ': Stated(time="2026-11-20T23:13:07Z", label="llama-0"),
            b"2026-11-20T23:13:07+01:00 {}\t": Stated(time="2026-11-20T23:13:07+01:00"),
        },
    ),
    # Metaflow: time, ``[RUN/STEP/TASK (pid N)]``.
    "metaflow": Prefix(
        b"0123456789",
        re.compile(rb"(?P<time>" + ISO + rb") \[(?P<label>[^\s\[\]/]++/[^\s\[\]]++)(?: \(pid \d+\))?\] "),
        {
            b"2026-11-20 23:13:07.071 [123/train/456 (pid 789)] ": Stated(
                time="2026-11-20 23:13:07.071", label="123/train/456"
            )
        },
    ),
    # Intel MPI and MPICH (Hydra's ``-prepend-rank``, ``-l``): the rank, with its node if the pattern says so.
    "mpich": Prefix(
        b"[",
        re.compile(rb"\[(?P<rank>\d{1,7})(?:@(?P<label>[\w.-]+))?\] "),
        {b"[3] ": Stated(rank=3), b"[3@node-1] ": Stated(label="node-1", rank=3)},
    ),
    # Open MPI's ``--tag-output`` with ``--timestamp-output``, and PRRTE's (Open MPI 5).
    "openmpi": Prefix(
        b"[ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        re.compile(
            rb"(?:(?P<time>[A-Z][a-z]{2} " + DAY + rb" \d{4}|" + ISO + rb") ?)?"
            rb"\[(?:(?P<label>[\w.-]+)@)?\d+,(?P<rank>\d{1,7})\](?:\[[^\[\]]*\])?"
            rb"<(?P<stream>stdout|stderr|stddiag)>: ?"
        ),
        {
            b"[1,0]<stdout>:": Stated(rank=0, stream="stdout"),
            b"[1,15]<stderr>: ": Stated(rank=15, stream="stderr"),
            b"[prterun-host-123@1,0]<stdout>: ": Stated(label="prterun-host-123", rank=0, stream="stdout"),
            b"Fri Nov 20 23:13:07 2026[1,3]<stdout>:": Stated(time="Fri Nov 20 23:13:07 2026", rank=3, stream="stdout"),
        },
    ),
    # pdsh, dsh, Ansible and DeepSpeed's launcher: the node before every line.
    "pdsh": Prefix(
        WORD,
        re.compile(
            rb"(?![\w.]{0,80}(?:Error|Exception): )"  # the last line of a Python traceback
            rb"(?!slurmstepd(?:-[\w.-]{0,80})?: error: )"  # the step's own daemon, with its node
            rb"(?P<label>[A-Za-z_][\w.-]{0,80}|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}): "
        ),
        {b"node-1: ": Stated(label="node-1"), b"10.0.0.1: ": Stated(label="10.0.0.1")},
    ),
    # Ray and vLLM: the worker's name, pid and address; a line that several workers print is shown once.
    "ray": Prefix(
        b"(",
        re.compile(rb"\((?P<label>(?:[^()]{0,200}\b)?pid=\d{1,10}[^()]{0,200}|raylet[^()]{0,100})\) "),
        {
            b"(RayWorkerWrapper pid=123, ip=10.0.0.1) ": Stated(label="RayWorkerWrapper pid=123, ip=10.0.0.1"),
            b"(pid=123) ": Stated(label="pid=123"),
            b"(VllmWorkerProcess pid=1) ": Stated(label="VllmWorkerProcess pid=1"),
            b"(EngineCore_0 pid=123) ": Stated(label="EngineCore_0 pid=123"),
            b"(Worker_TP0 pid=124) ": Stated(label="Worker_TP0 pid=124"),
        },
        trailer=(b"[repeated ", re.compile(rb" ?\[repeated \d+x across cluster\].*$")),
    ),
    # SageMaker's MPI: ``[1,mpirank:0,algo-1]<stdout>:`` before every line.
    "sagemaker_mpi": Prefix(
        b"[",
        re.compile(rb"\[\d+,mpirank:(?P<rank>\d{1,7}),(?P<label>[\w.-]{1,80})\]<(?P<stream>stdout|stderr|stddiag)>: ?"),
        {b"[1,mpirank:0,algo-1]<stdout>:": Stated(label="algo-1", rank=0, stream="stdout")},
    ),
    # ``srun -l``: the task before every line, padded to the width of the largest.
    "srun": Prefix(
        b" 0123456789", re.compile(rb" {0,6}(?P<rank>\d{1,7}): "), {b"0: ": Stated(rank=0), b"  12: ": Stated(rank=12)}
    ),
    # ``stern``: pod and container before every line, with their namespace if there are several.
    "stern": Prefix(
        b"abcdefghijklmnopqrstuvwxyz0123456789",
        re.compile(
            rb"(?P<label>(?:[a-z][a-z0-9-]* )?[a-z0-9][a-z0-9.]*-[a-z0-9.-]+ (?:\xe2\x80\xba )?[a-z0-9][a-z0-9-]*) "
        ),
        {
            b"llama-node-0-0 trainer ": Stated(label="llama-node-0-0 trainer"),
            b"ml llama-node-0-0 trainer ": Stated(label="ml llama-node-0-0 trainer"),
            b"llama-node-0-0 \xe2\x80\xba trainer ": Stated(label="llama-node-0-0 › trainer"),
        },
    ),
    # ``docker service logs``: task, its id and its node before every line.
    "swarm": Prefix(
        b"abcdefghijklmnopqrstuvwxyz0123456789",
        re.compile(rb"(?P<label>[a-z0-9][\w.-]{0,120}\.\d{1,5}\.[a-z0-9]{1,30}@[\w.-]{1,80}) +\| "),
        {b"trainer.1.ud8q2p7x1m3v@node-1    | ": Stated(label="trainer.1.ud8q2p7x1m3v@node-1")},
    ),
    # Syslog by RFC 3164: priority, time, node and tag.
    "syslog_3164": Prefix(
        b"<",
        re.compile(
            rb"<\d{1,3}>(?P<time>" + DAY + rb"|" + ISO + rb") (?P<node>[\w.-]+)"
            rb"(?: (?P<label>[\w./-]{1,48}))?(?:\[\d+\])?: ?"
        ),
        {b"<13>Nov 20 23:13:07 node-1 train[123]: ": Stated(time="Nov 20 23:13:07", label="train@node-1")},
    ),
    # Syslog by RFC 5424: priority, version, time, node, program, process, message id, structured data.
    "syslog_5424": Prefix(
        b"<",
        re.compile(
            rb"<\d{1,3}>1 (?P<time>" + ISO + rb"|-) (?P<node>\S+) (?P<label>\S+) \S+ \S+ "
            rb"(?:-|(?:\[[^\]]*\])+) (?:\xef\xbb\xbf)?"
        ),
        {
            b"<13>1 2026-11-20T23:13:07.071Z node-1 train 123 - - ": Stated(
                time="2026-11-20T23:13:07.071Z", label="train@node-1"
            ),
            b'<13>1 2026-11-20T23:13:07.071Z node-1 train 123 ID1 [meta a="b"] \xef\xbb\xbf': Stated(
                time="2026-11-20T23:13:07.071Z", label="train@node-1"
            ),
        },
    ),
    # PyTorch and its launchers: ``[rank3]:``.
    "torch_rank": Prefix(
        b"[",
        re.compile(rb"\[rank(?P<rank>\d{1,7})\]: ?"),
        {b"[rank0]:": Stated(rank=0), b"[rank12]: ": Stated(rank=12)},
    ),
    # torchrun (``--tee``): ``[ROLE and local rank]:``; torchx: ``[ROLE and replica]:``.
    "torchrun": Prefix(
        b"[",
        re.compile(rb"\[(?P<label>(?!rank\d)[a-z][\w-]{0,40}\d|\d{1,4})\]: ?"),
        {
            b"[default0]:": Stated(label="default0"),
            b"[0]:": Stated(label="0"),
            b"[trainer3]:": Stated(label="trainer3"),
        },
    ),
    # torchx: ``ROLE/REPLICA `` before every line.
    "torchx": Prefix(
        b"abcdefghijklmnopqrstuvwxyz",
        re.compile(rb"(?P<label>[a-z][\w-]{0,40}/\d{1,5}) "),
        {b"trainer/0 ": Stated(label="trainer/0")},
    ),
    # Bars of tqdm, which end without a line end: the next line is glued to the bar.
    "tqdm": Prefix(
        b" 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ|",
        re.compile(
            rb"[^|\[\]\x22'\n]{0,80}?\d{1,3}%\|[^|\n]{0,300}\| ?[\d.,kMGT]{1,12}/[\d.,kMGT]{1,12} "
            rb"\[[\d:<, ?.a-zA-Z/%=+-]{1,120}\] ?"
        ),
        {
            "  5%|▌   | 1/20 [00:01<00:19]".encode(): Stated(),
            "Loading: 100%|█████| 4/4 [00:01<00:00,  2.51it/s]".encode(): Stated(),
        },
    ),
    # vLLM's logger repeats this before each line of a traceback.
    "vllm_logger": Prefix(
        b"E",
        re.compile(rb"ERROR \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,80}:\d{1,5}\] "),
        {b"ERROR 11-21 10:00:00 [core.py:390] ": Stated(), b"ERROR 11-21 10:00:00 worker_base.py:574] ": Stated()},
    ),
}

WHOLE_LINES = {
    # Rows of CSV: CloudWatch Logs Insights, Grafana, Azure; the cell with the line is recognized by its content.
    "csv": Whole(
        CSV_FIRST,
        CSV,
        read_csv,
        {
            b"2026-11-20 23:13:07.071,LINE": Stated(time="2026-11-20 23:13:07.071"),
            b'2026-11-20 23:13:07.071,"LINE",train/main': Stated(time="2026-11-20 23:13:07.071"),
            b'"LINE"': Stated(),
        },
    ),
    # Fluent Bit's standard output: the number of a record, its tag, its time and its object.
    "fluent_bit_stdout": Whole(
        b"[",
        FLUENT_BIT,
        read_led_json,
        {
            b'[0] kube.llama: [[1795216387.071868123, {}], {"log":"LINE"}]': Stated(
                time="1795216387.071868123", label="kube.llama"
            ),
            b'[0] kube.llama: [1795216387.071868123, {"log":"LINE"}]': Stated(
                time="1795216387.071868123", label="kube.llama"
            ),
        },
    ),
    # JSON objects, alone or in a list, and members of an object that is spread over lines.
    "json": Whole(
        JSON_FIRST,
        JSON,
        read_json,
        {
            # Azure Monitor: rows of ``ContainerLog`` and of ``ContainerLogV2``.
            b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","Computer":"aks-1","LogEntry":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="aks-1"
            ),
            b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","PodName":"llama-0","LogMessage":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="llama-0"
            ),
            # OpenTelemetry collectors, SigNoz and Honeycomb, and log records of OpenTelemetry itself.
            b'{"timestamp":"2026-11-20T23:13:07.071Z","body":"LINE","host":"gpu-1"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="gpu-1"
            ),
            b'{"timeUnixNano":"1795216387071868123","severityText":"INFO","body":{"stringValue":"LINE"}}': Stated(
                time="1795216387071868123"
            ),
            # CloudWatch: single events (``jq -c .events[]``), and members of events that are spread over lines.
            b'{"logStreamName":"train/main/4f1c","timestamp":1795216387071,"message":"LINE"},': Stated(
                time="1795216387071", label="train/main/4f1c"
            ),
            b'            "message": "LINE",': Stated(),
            b'[{"timestamp":1795216387071,"message":"LINE"}]': Stated(time="1795216387071"),
            # CloudWatch: rows of Logs Insights, exports, and subscriptions to S3 and Firehose.
            b'{"@timestamp":"2026-11-20 23:13:07.071","@message":"LINE","@logStream":"train/main/4f1c"}': Stated(
                time="2026-11-20 23:13:07.071", label="train/main/4f1c"
            ),
            b'{"events":[{"timestamp":1795216387071,"message":"LINE","logStreamName":"train/main/4f1c"}]}': Stated(
                time="1795216387071", label="train/main/4f1c"
            ),
            b'{"logGroup":"train","logEvents":[{"id":"1","timestamp":1795216387071,"message":"LINE"}]}': Stated(
                time="1795216387071"
            ),
            # Datadog: answers of the logs API, and rows of the log explorer.
            b'{"id":"A1","attributes":{"timestamp":"2026-11-20T23:13:07Z","host":"gpu-1","message":"LINE"}}': Stated(
                time="2026-11-20T23:13:07Z", label="gpu-1"
            ),
            b'{"Date":"2026-11-20T23:13:07.071Z","Host":"gpu-1","Service":"train","Message":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="train@gpu-1"
            ),
            b'{"Date":"2026-11-20T23:13:07.071Z","Host":"gpu-1","Service":"train","Content":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="train@gpu-1"
            ),
            # Docker's ``json-file`` driver; long lines come in parts of 16 kB.
            b'{"log":"LINE\\n","stream":"stdout","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
                time="2026-11-20T23:13:07.071868123Z", stream="stdout"
            ),
            # Elasticsearch and OpenSearch: hits, as Filebeat and Fluent Bit send them.
            b'{"_source":{"@timestamp":"2026-11-20T23:13:07Z","message":"LINE","host":{"name":"gpu-1"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="gpu-1"
            ),
            b'{"_source":{"@timestamp":"2026-11-20T23:13:07Z","log":"LINE","kubernetes":{"pod_name":"l-0"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="l-0"
            ),
            # Fluent Bit and Fluentd: objects with ``log`` and what Kubernetes says of the pod.
            b'{"stream":"stderr","logtag":"P","log":"LINE","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
                time="2026-11-20T23:13:07.071868123Z", stream="stderr", partial=True
            ),
            b'{"stream":"stderr","logtag":"F","log":"LINE","time":"2026-11-20T23:13:07.071868124Z"}': Stated(
                time="2026-11-20T23:13:07.071868124Z", stream="stderr"
            ),
            b'{"date":1795216387.071868,"log":"LINE","kubernetes":{"pod_name":"l-0","container_name":"main"}}': Stated(
                time="1795216387.071868", label="l-0/main"
            ),
            # Google Cloud Logging: entries with a JSON payload and with text.
            b'[{"jsonPayload":{"message":"LINE"},"timestamp":"2026-11-20T23:13:07Z"},': Stated(
                time="2026-11-20T23:13:07Z"
            ),
            b'{"textPayload":"LINE","timestamp":"2026-11-20T23:13:07Z","resource":{"labels":{"pod_name":"l"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="l"
            ),
            # Grafana: rows of a table. Loki: ``logcli -o jsonl`` and downloads.
            b'{"Time":"2026-11-20T23:13:07.071Z","Line":"LINE","tsNs":"1795216387071868123"}': Stated(
                time="2026-11-20T23:13:07.071Z"
            ),
            b'{"labels":{"pod":"llama-0"},"line":"LINE","timestamp":"2026-11-20T23:13:07Z"}': Stated(
                time="2026-11-20T23:13:07Z", label="llama-0"
            ),
            # ``journalctl -o json``: the message is a list of bytes when it is not plain text.
            b'{"__REALTIME_TIMESTAMP":"1795216387071868","_HOSTNAME":"n","_SYSTEMD_UNIT":"t","MESSAGE":"LINE"}': Stated(
                time="1795216387071868", label="t@n"
            ),
            # Programs that log JSON: Go's slog, zap and logrus, pino.
            b'{"time":"2026-11-20T23:13:07.071Z","level":"INFO","msg":"LINE"}': Stated(time="2026-11-20T23:13:07.071Z"),
            # Splunk: exported rows, and results of an export search.
            b'{"_raw":"LINE","_time":"2026-11-20T23:13:07+00:00","host":"gpu-1"}': Stated(
                time="2026-11-20T23:13:07+00:00", label="gpu-1"
            ),
            b'{"preview":false,"result":{"_raw":"LINE","_time":"2026-11-20T23:13:07+00:00","host":"gpu-1"}}': Stated(
                time="2026-11-20T23:13:07+00:00", label="gpu-1"
            ),
            # Vector, Logstash and programs that log JSON.
            b'{"message":"LINE","timestamp":"2026-11-20T23:13:07Z","kubernetes":{"pod_name":"llama-0"}}': Stated(
                time="2026-11-20T23:13:07Z", label="llama-0"
            ),
            b'{"message":"LINE","stream":"stdout","logtag":"P","@timestamp":"2026-11-20T23:13:07Z"}': Stated(
                time="2026-11-20T23:13:07Z", stream="stdout", partial=True
            ),
            b'{"message":"LINE","stream":"stdout","logtag":"F","@timestamp":"2026-11-20T23:13:08Z"}': Stated(
                time="2026-11-20T23:13:08Z", stream="stdout"
            ),
            b'{"message":"LINE","rank":3}': Stated(rank=3),
            # Objects of no known kind.
            b'{"when":"2026-11-20T23:13:07.071Z","what":{"said":"LINE"}}': Stated(time="2026-11-20T23:13:07.071Z"),
        },
    ),
    # logfmt, as Loki, Prometheus and Go's loggers write it.
    "logfmt": Whole(
        LOGFMT_FIRST,
        LOGFMT,
        read_logfmt,
        {
            b'ts=2026-11-20T23:13:07.071Z level=info pod=llama-0 msg="LINE"': Stated(
                time="2026-11-20T23:13:07.071Z", label="llama-0"
            ),
            b'time="2026-11-20T23:13:07Z" level=info msg="LINE" rank=3': Stated(time="2026-11-20T23:13:07Z", rank=3),
        },
    ),
    # Lines in quotes: Ansible's ``stdout_lines``, and lists and bytes as Python prints them.
    "quoted": Whole(QUOTED_FIRST, QUOTED, read_quoted, {b'        "LINE",': Stated(), b"b'LINE'": Stated()}),
    # A time, a stream or tag, and an object: ``aws logs tail`` of logs of Fluent Bit, Fluentd's files and output.
    "tagged_json": Whole(
        TAGGED_FIRST,
        TAGGED,
        read_led_json,
        {
            b'2026-11-20T23:13:07.071000+00:00 ip-10-0-0-1.app.llama-0 {"log":"LINE","stream":"stdout"}': Stated(
                time="2026-11-20T23:13:07.071000+00:00", label="ip-10-0-0-1.app.llama-0", stream="stdout"
            ),
            b'2026-11-20T23:13:07+00:00\tkube.llama\t{"log":"LINE\\n","kubernetes":{"pod_name":"llama-0"}}': Stated(
                time="2026-11-20T23:13:07+00:00", label="kube.llama llama-0"
            ),
            b'2026-11-20 23:13:07.071868000 +0000 kube.llama: {"log":"LINE"}': Stated(
                time="2026-11-20 23:13:07.071868000 +0000", label="kube.llama"
            ),
        },
    ),
}
