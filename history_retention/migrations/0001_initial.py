"""The ledger in the project's own database, and the agents' tables as seen from here."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "thread_id",
                        "checkpoint_ns",
                        "checkpoint_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("thread_id", models.TextField(verbose_name="thread")),
                ("checkpoint_ns", models.TextField(verbose_name="namespace")),
                ("checkpoint_id", models.TextField(verbose_name="checkpoint")),
                ("parent_checkpoint_id", models.TextField(null=True, verbose_name="parent")),
                ("type", models.TextField(null=True, verbose_name="encoding")),
                ("checkpoint", models.BinaryField(null=True, verbose_name="state")),
                ("metadata", models.BinaryField(null=True, verbose_name="metadata")),
            ],
            options={
                "verbose_name": "checkpoint",
                "verbose_name_plural": "checkpoints",
                "db_table": "checkpoints",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="CheckpointWrite",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "thread_id",
                        "checkpoint_ns",
                        "checkpoint_id",
                        "task_id",
                        "idx",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("thread_id", models.TextField(verbose_name="thread")),
                ("checkpoint_ns", models.TextField(verbose_name="namespace")),
                ("checkpoint_id", models.TextField(verbose_name="checkpoint")),
                ("task_id", models.TextField(verbose_name="task")),
                ("idx", models.BigIntegerField(verbose_name="number")),
                ("channel", models.TextField(verbose_name="channel")),
                ("type", models.TextField(null=True, verbose_name="encoding")),
                ("value", models.BinaryField(null=True, verbose_name="value")),
            ],
            options={
                "verbose_name": "checkpoint write",
                "verbose_name_plural": "checkpoint writes",
                "db_table": "checkpoint_writes",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Conversation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("started_ts", models.TextField(verbose_name="started")),
                ("project", models.TextField(null=True, verbose_name="project")),
                ("command", models.TextField(null=True, verbose_name="command")),
                ("model", models.TextField(null=True, verbose_name="model")),
                ("thread_id", models.TextField(null=True, verbose_name="thread")),
                ("grants", models.TextField(null=True, verbose_name="grants")),
            ],
            options={
                "verbose_name": "conversation",
                "verbose_name_plural": "conversations",
                "db_table": "conversations",
                "ordering": ["-id"],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="LangGraphWrite",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "thread_id",
                        "checkpoint_ns",
                        "checkpoint_id",
                        "task_id",
                        "idx",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("thread_id", models.TextField(verbose_name="thread")),
                ("checkpoint_ns", models.TextField(verbose_name="namespace")),
                ("checkpoint_id", models.TextField(verbose_name="checkpoint")),
                ("task_id", models.TextField(verbose_name="task")),
                ("idx", models.BigIntegerField(verbose_name="number")),
                ("channel", models.TextField(verbose_name="channel")),
                ("type", models.TextField(null=True, verbose_name="encoding")),
                ("value", models.BinaryField(null=True, verbose_name="value")),
                ("task_path", models.TextField(verbose_name="task path")),
            ],
            options={
                "verbose_name": "LangGraph write",
                "verbose_name_plural": "LangGraph writes",
                "db_table": "writes",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("ts", models.TextField(verbose_name="at")),
                ("project", models.TextField(null=True, verbose_name="project")),
                ("command", models.TextField(null=True, verbose_name="command")),
                ("model", models.TextField(null=True, verbose_name="model")),
                ("prompt", models.TextField(null=True, verbose_name="prompt")),
                ("response", models.TextField(null=True, verbose_name="response")),
                ("tokens_input", models.BigIntegerField(null=True, verbose_name="tokens in")),
                ("tokens_output", models.BigIntegerField(null=True, verbose_name="tokens out")),
                ("cost_usd", models.FloatField(null=True, verbose_name="cost in USD")),
                ("tools", models.TextField(null=True, verbose_name="tools")),
                ("duration_ms", models.BigIntegerField(null=True, verbose_name="duration in ms")),
                (
                    "conversation",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="turns",
                        to="history_retention.conversation",
                        verbose_name="conversation",
                    ),
                ),
            ],
            options={
                "verbose_name": "turn",
                "verbose_name_plural": "turns",
                "db_table": "sessions",
                "ordering": ["-id"],
                "permissions": [("view_session_content", "Can read the text of turns")],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Measurement",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("store", models.CharField(max_length=255, verbose_name="store")),
                ("layout", models.CharField(max_length=64, verbose_name="layout")),
                ("measured_at", models.DateTimeField(verbose_name="measured at")),
                (
                    "file_bytes",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="file"),
                ),
                (
                    "free_bytes",
                    models.PositiveBigIntegerField(
                        help_text="bytes", verbose_name="free inside the file"
                    ),
                ),
                (
                    "wal_bytes",
                    models.PositiveBigIntegerField(
                        help_text="bytes", verbose_name="write-ahead log"
                    ),
                ),
                (
                    "checkpoint_bytes",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="checkpoints"),
                ),
                (
                    "transcript_bytes",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="transcripts"),
                ),
                ("thread_count", models.PositiveBigIntegerField(verbose_name="threads")),
                (
                    "checkpoint_count",
                    models.PositiveBigIntegerField(verbose_name="checkpoint rows"),
                ),
                ("write_count", models.PositiveBigIntegerField(verbose_name="write rows")),
                (
                    "conversation_count",
                    models.PositiveBigIntegerField(verbose_name="conversations"),
                ),
                ("turn_count", models.PositiveBigIntegerField(verbose_name="turns")),
                (
                    "unresumable_count",
                    models.PositiveBigIntegerField(verbose_name="unresumable threads"),
                ),
                (
                    "unresumable_bytes",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="unresumable"),
                ),
                (
                    "reclaimable_count",
                    models.PositiveBigIntegerField(verbose_name="reclaimable threads"),
                ),
                (
                    "reclaimable_bytes",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="reclaimable"),
                ),
            ],
            options={
                "verbose_name": "measurement",
                "verbose_name_plural": "measurements",
                "ordering": ["-measured_at", "-pk"],
                "get_latest_by": "measured_at",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["store", "-measured_at"], name="history_measurement_store")
                ],
            },
        ),
        migrations.CreateModel(
            name="Thread",
            fields=[
                (
                    "digest",
                    models.CharField(
                        editable=False, max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("store", models.CharField(db_index=True, max_length=255, verbose_name="store")),
                ("thread_id", models.TextField(verbose_name="thread")),
                (
                    "byte_count",
                    models.PositiveBigIntegerField(help_text="bytes", verbose_name="size"),
                ),
                ("checkpoint_count", models.PositiveBigIntegerField(verbose_name="checkpoints")),
                ("write_count", models.PositiveBigIntegerField(verbose_name="writes")),
                ("turn_count", models.PositiveBigIntegerField(verbose_name="turns")),
                (
                    "first_activity",
                    models.DateTimeField(blank=True, null=True, verbose_name="first activity"),
                ),
                (
                    "last_activity",
                    models.DateTimeField(blank=True, null=True, verbose_name="last activity"),
                ),
                (
                    "conversation_ids",
                    models.JSONField(blank=True, default=list, verbose_name="conversations"),
                ),
                ("label", models.TextField(blank=True, verbose_name="label")),
                ("command", models.CharField(blank=True, max_length=255, verbose_name="command")),
                ("project", models.CharField(blank=True, max_length=1024, verbose_name="project")),
                (
                    "state",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("resumable", "resumable"),
                            ("unresumable", "unresumable"),
                            ("grace", "in grace"),
                            ("held", "held"),
                            ("leased", "in use"),
                            ("unknown_age", "unknown age"),
                            ("", "not known"),
                        ],
                        db_index=True,
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                ("measured_at", models.DateTimeField(verbose_name="measured at")),
                (
                    "measuring",
                    models.UUIDField(
                        editable=False,
                        help_text="The pass over the store that saw the thread last.",
                    ),
                ),
            ],
            options={
                "verbose_name": "thread",
                "verbose_name_plural": "threads",
                "ordering": ["-byte_count", "digest"],
                "permissions": [
                    ("prune_thread", "Can prune the stored state of threads"),
                    ("reclaim_thread", "Can reclaim unresumable threads"),
                    ("measure_thread", "Can measure a store"),
                    ("vacuum_store", "Can vacuum a store"),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["-byte_count", "digest"], name="history_thread_size"),
                    models.Index(fields=["store", "-byte_count"], name="history_thread_store_size"),
                    models.Index(fields=["last_activity"], name="history_thread_activity"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Hold",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("store", models.CharField(max_length=255, verbose_name="store")),
                ("thread_id", models.TextField(verbose_name="thread")),
                ("reason", models.TextField(verbose_name="reason")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="since")),
                (
                    "until",
                    models.DateTimeField(
                        blank=True,
                        help_text="Empty: until somebody removes the hold.",
                        null=True,
                        verbose_name="until",
                    ),
                ),
                (
                    "by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "hold",
                "verbose_name_plural": "holds",
                "ordering": ["-created_at", "-pk"],
                "indexes": [models.Index(fields=["store"], name="history_hold_store")],
            },
        ),
        migrations.CreateModel(
            name="Sweep",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("prune", "prune"), ("reclaim", "reclaim"), ("vacuum", "vacuum")],
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                ("store", models.CharField(max_length=255, verbose_name="store")),
                ("layout", models.CharField(max_length=64, verbose_name="layout")),
                (
                    "trigger",
                    models.CharField(
                        choices=[
                            ("command", "command"),
                            ("admin", "admin"),
                            ("schedule", "schedule"),
                            ("code", "code"),
                        ],
                        max_length=16,
                        verbose_name="trigger",
                    ),
                ),
                ("bounds", models.JSONField(blank=True, default=dict, verbose_name="bounds")),
                ("as_of", models.DateTimeField(verbose_name="as of")),
                ("started_at", models.DateTimeField(verbose_name="started")),
                (
                    "finished_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="finished"),
                ),
                (
                    "planned_threads",
                    models.PositiveBigIntegerField(default=0, verbose_name="threads planned"),
                ),
                (
                    "planned_bytes",
                    models.PositiveBigIntegerField(
                        default=0, help_text="bytes", verbose_name="planned"
                    ),
                ),
                (
                    "removed_threads",
                    models.PositiveBigIntegerField(default=0, verbose_name="threads removed"),
                ),
                (
                    "removed_checkpoints",
                    models.PositiveBigIntegerField(default=0, verbose_name="checkpoints removed"),
                ),
                (
                    "removed_writes",
                    models.PositiveBigIntegerField(default=0, verbose_name="writes removed"),
                ),
                (
                    "removed_bytes",
                    models.PositiveBigIntegerField(
                        default=0, help_text="bytes", verbose_name="removed"
                    ),
                ),
                (
                    "skipped_threads",
                    models.PositiveBigIntegerField(default=0, verbose_name="threads skipped"),
                ),
                (
                    "file_bytes_before",
                    models.PositiveBigIntegerField(
                        blank=True, null=True, verbose_name="file before"
                    ),
                ),
                (
                    "file_bytes_after",
                    models.PositiveBigIntegerField(
                        blank=True, null=True, verbose_name="file after"
                    ),
                ),
                ("vacuumed", models.BooleanField(default=False, verbose_name="vacuumed")),
                ("vacuum_reason", models.TextField(blank=True, verbose_name="vacuum")),
                (
                    "ending",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("done", "done"),
                            ("partial", "partial"),
                            ("interrupted", "interrupted"),
                            ("failed", "failed"),
                        ],
                        default="running",
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("error", models.TextField(blank=True, verbose_name="error")),
                (
                    "actor",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "sweep",
                "verbose_name_plural": "sweeps",
                "ordering": ["-started_at", "-pk"],
                "get_latest_by": "started_at",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["store", "-started_at"], name="history_sweep_store")
                ],
            },
        ),
    ]
