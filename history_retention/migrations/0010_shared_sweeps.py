from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history_retention", "0009_largest_values")]

    operations = [
        migrations.AddField(
            model_name="sweep",
            name="resumed_at",
            field=models.DateTimeField(
                editable=False,
                help_text="When a schedule told the workers of it again.",
                null=True,
            ),
        ),
        # A number is no time to a database: the field is another one of the same name.
        migrations.RemoveField(model_name="sweep", name="paced_until"),
        migrations.AddField(
            model_name="sweep",
            name="paced_until",
            field=models.DateTimeField(
                editable=False,
                help_text="When the next removal is allowed, by the clock of this database.",
                null=True,
            ),
        ),
    ]
