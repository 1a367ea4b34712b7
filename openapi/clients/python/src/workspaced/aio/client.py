"""The client of an operator."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import httpx

from .. import types
from .run import Run, id_of
from ..values import Event, ResumePoint
from .streams import follow
from .transport import Transport, pages, segment


class Client:
    """Creates and finds runs, decides approvals, and reads the audit of all runs.

    Requests that fail in transport or are answered with 429 or 503 are sent up to `retries` times more, with the same IDs.
    The same client for threads is `workspaced.Client`.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float = 60.0, retries: int = 5, http: httpx.AsyncClient | None = None
    ) -> None:
        self.transport = Transport(url, token, timeout=timeout, retries=retries, http=http)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self.transport.http.aclose()

    async def create_run(
        self,
        source: types.Source | None = None,
        *,
        run_id: str | None = None,
        policy: types.PolicyOverrides | None = None,
        mounts: Sequence[types.MountRequest] = (),
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        permissions: Sequence[types.Permission] | None = None,
    ) -> tuple[Run, types.IssuedToken]:
        """Creates a run, empty by default. Returns it with its first token.

        Calls of the returned run are made by the operator: `Client.agent` makes those of the token. With `permissions`, the
        first token is revoked and one with these permissions is returned.
        """
        body = {"source": source or {"type": "empty"}, "runId": run_id, "policy": policy, "mounts": list(mounts) or None,
                "labels": labels, "ttlSeconds": ttl_seconds}  # fmt: skip
        body = {name: value for name, value in body.items() if value is not None}
        key = {"Idempotency-Key": f"create-{uuid.uuid4()}"}
        created: types.CreatedRun = await self.transport.json("POST", "/v1/runs", body, headers=key)
        run, token = self.run(created["run"]["runId"]), created["token"]
        if permissions is not None:
            issued = await run.issue_token(permissions)
            await run.revoke_token(token["tokenId"])
            token = issued
        return run, token

    async def fork(
        self,
        run: Run | str,
        at_seq: int | None = None,
        *,
        run_id: str | None = None,
        policy: types.PolicyOverrides | None = None,
        mounts: Sequence[types.MountRequest] = (),
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        permissions: Sequence[types.Permission] | None = None,
    ) -> tuple[Run, types.IssuedToken]:
        """Creates a run with the files of another one at a record, by default the newest. Returns what `create_run` returns.

        Without a policy and mounts, it has those of the other run. `Run.merge` brings its changes back.
        """
        source: types.SourceRun = {"type": "run", "runId": id_of(run)}
        if at_seq is not None:
            source["atSeq"] = at_seq
        return await self.create_run(
            source, run_id=run_id, policy=policy, mounts=mounts, labels=labels, ttl_seconds=ttl_seconds, permissions=permissions
        )

    def run(self, run_id: str) -> Run:
        """Returns a run, without a request."""
        return Run(self.transport, run_id)

    def agent(self, run_id: str, token: str) -> Run:
        """Returns a run whose calls are made with this token."""
        return Run(self.transport.with_token(token), run_id)

    def runs(self, **filters: Any) -> AsyncIterator[types.Run]:
        """Yields the runs, page by page. The filters are the parameters of `GET /v1/runs`, such as `state="open"`."""
        return cast(AsyncIterator[types.Run], pages(self.transport, "/v1/runs", filters))

    def approvals(self, **filters: Any) -> AsyncIterator[types.Approval]:
        """Yields the approvals, page by page: for example `state="pending"`, `run=...`."""
        return cast(AsyncIterator[types.Approval], pages(self.transport, "/v1/approvals", filters))

    async def approval(self, approval_id: str) -> types.Approval:
        """Returns an approval with its diff."""
        return cast(types.Approval, await self.transport.json("GET", f"/v1/approvals/{segment(approval_id)}"))

    async def approve(self, approval_id: str, note: str | None = None, on_behalf_of: str | None = None) -> types.ApprovalResult:
        """Approves a call, which is then judged again and executed."""
        return await self._decide(approval_id, "approve", note, on_behalf_of)

    async def deny(self, approval_id: str, note: str | None = None, on_behalf_of: str | None = None) -> types.ApprovalResult:
        """Denies a call."""
        return await self._decide(approval_id, "deny", note, on_behalf_of)

    async def _decide(self, approval: str, verb: str, note: str | None, on_behalf_of: str | None) -> types.ApprovalResult:
        body = {name: value for name, value in (("note", note), ("onBehalfOf", on_behalf_of)) if value is not None}
        path = f"/v1/approvals/{segment(approval)}/{verb}"
        # The first of two decisions counts: after a lost answer, `approval` says what was decided.
        return cast(types.ApprovalResult, await self.transport.json("POST", path, body, repeatable=False))

    def audit(self, **filters: Any) -> AsyncIterator[types.AuditRecord]:
        """Yields the records of all runs, page by page: for example `run=...`, `tool=...`, `outcome="refused"`."""
        return cast(AsyncIterator[types.AuditRecord], pages(self.transport, "/v1/audit", filters))

    def follow(
        self, *, resume: ResumePoint | None = None, timeout: float | None = None, **filters: str
    ) -> AsyncIterator[Event]:
        """Yields records as they are made, without a gap; `since` begins with earlier ones.

        A lost connection is opened again. `timeout` limits the seconds of silence.
        """
        return follow(self.transport, "/v1/audit/stream", filters, resume or ResumePoint(), timeout)

    def operators(self, **filters: Any) -> AsyncIterator[types.Operator]:
        """Yields the operators, page by page."""
        return cast(AsyncIterator[types.Operator], pages(self.transport, "/v1/operators", filters))

    async def create_operator(
        self, name: str, scopes: Sequence[types.Scope], expires_at: str | None = None
    ) -> types.CreatedOperator:
        """Creates an operator. The answer has the token, which is shown only once."""
        body = {"name": name, "scopes": list(scopes), **({"expiresAt": expires_at} if expires_at else {})}
        return cast(types.CreatedOperator, await self.transport.json("POST", "/v1/operators", body, repeatable=False))

    async def rotate_operator_token(
        self, name: str, *, overlap_seconds: int | None = None, expires_at: str | None = None
    ) -> types.CreatedOperator:
        """Gives an operator another token, which is shown only once. The present one stays valid for `overlap_seconds`."""
        body = {"overlapSeconds": overlap_seconds, "expiresAt": expires_at}
        body = {member: value for member, value in body.items() if value is not None}
        key = {"Idempotency-Key": f"rotate-{uuid.uuid4()}"}
        path = f"/v1/operators/{segment(name)}/tokens"
        return cast(types.CreatedOperator, await self.transport.json("POST", path, body, headers=key))

    async def revoke_operator(self, name: str) -> None:
        """Revokes an operator's token."""
        await self.transport.json("DELETE", f"/v1/operators/{segment(name)}")

    def webhooks(self) -> AsyncIterator[types.WebhookView]:
        """Yields the webhooks of the service's configuration."""
        return cast(AsyncIterator[types.WebhookView], pages(self.transport, "/v1/webhooks", {}))

    def deliveries(self, webhook: str, **filters: Any) -> AsyncIterator[types.WebhookDelivery]:
        """Yields the messages to a webhook, page by page; the newest first with `order="desc"`."""
        path = f"/v1/webhooks/{segment(webhook)}/deliveries"
        return cast(AsyncIterator[types.WebhookDelivery], pages(self.transport, path, filters))

    async def redeliver(self, webhook: str, message: str) -> types.WebhookDelivery:
        """Sends a message again, with the same ID. Returns the delivery, which is pending."""
        path = f"/v1/webhooks/{segment(webhook)}/deliveries/{segment(message)}/redeliver"
        return cast(types.WebhookDelivery, await self.transport.json("POST", path))

    async def limits(self) -> types.Limits:
        """Returns the limits of the service."""
        return cast(types.Limits, await self.transport.json("GET", "/v1/limits"))
