"""The tables of LangGraph's PostgreSQL savers as seen from here; nothing is migrated in them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("history_retention", "0006_lease"),
    ]

    operations = [
        migrations.CreateModel(
            name="CheckpointBlob",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "thread_id",
                        "checkpoint_ns",
                        "channel",
                        "version",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("thread_id", models.TextField(verbose_name="thread")),
                ("checkpoint_ns", models.TextField(verbose_name="namespace")),
                ("channel", models.TextField(verbose_name="channel")),
                ("version", models.TextField(verbose_name="version")),
                ("type", models.TextField(verbose_name="encoding")),
                ("blob", models.BinaryField(null=True, verbose_name="value")),
            ],
            options={
                "verbose_name": "checkpoint blob",
                "verbose_name_plural": "checkpoint blobs",
                "db_table": "checkpoint_blobs",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="checkpointwrite",
            name="blob",
            field=models.BinaryField(null=True, verbose_name="value in PostgreSQL"),
        ),
        migrations.AddField(
            model_name="checkpointwrite",
            name="task_path",
            field=models.TextField(verbose_name="task path"),
        ),
    ]
