"""What the pages share: read-only models, errors as messages, and whose store is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.contrib import admin, messages
from django.contrib.admin.options import ModelAdmin
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from ..conf import default_store, get_settings, store_options
from ..exceptions import HistoryRetentionError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    TypedAdmin = ModelAdmin
else:

    class TypedAdmin(admin.ModelAdmin):
        """Django's ModelAdmin, which is generic in its type stubs alone."""

        def __class_getitem__(cls, model: object) -> type[TypedAdmin]:
            """Ignore the model named for the type checker."""
            return cls


REFUSALS = (HistoryRetentionError, ImproperlyConfigured)
"""What is told to whoever asked: a store that refuses, or a setting of it that is wrong."""

ModelT = TypeVar("ModelT", bound=Model)
View = TypeVar("View", bound=Callable[..., Any])


class ReadOnlyAdmin(TypedAdmin[ModelT]):
    """Pages on a model that nobody adds to, changes or deletes from by hand."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OperationsAdmin(ReadOnlyAdmin[ModelT]):
    """Pages that do something to stores, beside those on the model's own rows."""

    def operation_page(
        self, request: HttpRequest, template: str, *, title: str, **context: Any
    ) -> TemplateResponse:
        """Return a page of the admin site under this model."""
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            template,
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "media": self.media,
                "list_url": list_url(self),
                "stores": list(get_settings().stores),
                "title": title,
                **context,
            },
        )


def errors_as_messages(view: View) -> View:
    """Show the sentence of one of ``REFUSALS`` on the model's list instead of failing."""

    @wraps(view)
    def wrapper(
        model_admin: ModelAdmin[Any], request: HttpRequest, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return view(model_admin, request, *args, **kwargs)
        except REFUSALS as error:
            model_admin.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(list_url(model_admin))

    return cast("View", wrapper)


def outside_transactions(view: View) -> View:
    """Keep ATOMIC_REQUESTS away from a view, whichever database asks for it.

    A sweep commits batch by batch, and its record must stay when the request fails later on.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def list_url(model_admin: ModelAdmin[Any]) -> str:
    """Return the address of a model's list."""
    return named_url(model_admin, "changelist")


def named_url(model_admin: ModelAdmin[Any], page: str) -> str:
    """Return the address of one of a model's pages that needs no object."""
    opts = model_admin.opts
    return reverse(
        f"admin:{opts.app_label}_{opts.model_name}_{page}",
        current_app=model_admin.admin_site.name,
    )


def asked_store(request: HttpRequest) -> str:
    """Return the store named in the address, or the first; UsageError when it is unknown."""
    asked = request.GET.get("store")
    return store_options(default_store() if asked is None else asked).alias


def signed_in(request: HttpRequest) -> User:
    """Return the user of a request that the admin site has let in."""
    return cast("User", request.user)
