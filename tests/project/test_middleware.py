import re

import pytest
from django.test import Client

INLINE = re.compile(
    r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|<style|\sstyle=|\son\w+=", re.IGNORECASE
)


def test_the_start_page_leads_to_the_admin(client: Client) -> None:
    response = client.get("/")

    assert (response.status_code, response["Location"]) == (302, "/admin/")


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/admin/", "/admin/history_retention/", "/admin/auth/user/"])
def test_the_policy_lets_nothing_inline_run_and_the_page_has_nothing_inline(
    admin_client: Client, path: str
) -> None:
    response = admin_client.get(path)

    assert response.status_code == 200
    assert response["Content-Security-Policy"].startswith("default-src 'self';")
    assert "unsafe" not in response["Content-Security-Policy"]
    assert INLINE.findall(response.content.decode()) == []
