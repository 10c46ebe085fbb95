"""From what was searched and how it was judged to the record of a whole model."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.dropin.compiled import COMPILED
from mtmc.whole.campaign import Campaign
from mtmc.whole.judge import Judged
from mtmc.whole.pieces import Piece, rest_share
from mtmc.whole.record import Record, Row
from mtmc.whole.settle import EAGER, PATCHED, Keys, best_of, is_patched


def record_of(campaign: Campaign, judged: Judged, device: str, folder: str | None) -> Record:
    """The record. device: name of the GPU that times are of. folder: where the runs are, None if nowhere."""
    choice = campaign.choice
    chosen = best_of(judged.times_ms)
    kept = kept_in(chosen, judged)
    rows = [_row(campaign, judged, piece, chosen, piece.key in kept) for piece in choice.pieces]
    rows += [Row(each.name, each.share, each.places, note=each.reason) for each in choice.passed_over]
    again = sum(found.entry is not None for found in campaign.searches.values())
    cached = [f"Not searched again: {again} of the pieces, of which the cache has what was found."] if again else []
    notes = (_verdict(chosen, judged), *judged.notes, *cached, *_places_without(campaign))
    return Record(
        tuple(sorted(rows, key=lambda row: -row.share)),
        rest_share(choice),
        dict(judged.times_ms),
        judged.kind,
        device,
        chosen,
        notes,
        folder,
        any(found.result is not None and found.result.cut_short for found in campaign.searches.values()),
    )


def _places_without(campaign: Campaign) -> Iterator[str]:
    """In which places a winner is not used although it is one, a sentence for each piece."""
    for found in campaign.searches.values():
        if found.not_right:
            reason = next(iter(found.not_right.values()))
            yield f"The winner of {found.piece.name} is not used in {len(found.not_right)} of its places: {reason}."


def kept_in(chosen: str, judged: Judged) -> Keys:
    """The pieces whose winners are in the model of that name."""
    if not is_patched(chosen):
        return frozenset()
    return judged.settled.kept if chosen == PATCHED else judged.compiled_kept


def _row(campaign: Campaign, judged: Judged, piece: Piece, chosen: str, kept: bool) -> Row:
    found = campaign.searches.get(piece.key)
    if found is None:
        return Row(piece.name, piece.share, len(piece.paths), note="not searched: it promises too little")
    speedup = found.speedup if found.result is not None or found.entry is not None else None
    return Row(
        piece.name, piece.share, len(piece.paths), found.spent.evaluations, speedup, kept,
        "" if kept else _why_not(found.no_gain, judged, piece, chosen),
    )  # fmt: skip


def _why_not(no_gain: str | None, judged: Judged, piece: Piece, chosen: str) -> str:
    """Why a piece's winner is not in the model that is handed back."""
    if no_gain is not None:
        return no_gain
    faster = judged.settled.dropped.get(piece.key)
    if faster is not None:
        return f"not kept: the whole is {faster:.3f}x as fast without it"
    return f"not used: {chosen} is faster" if chosen != EAGER else "not used: the whole is no faster with it"


def _verdict(chosen: str, judged: Judged) -> str:
    """What is handed back, in a sentence."""
    if is_patched(chosen):
        return f"Handed back: the model with the kernels that were kept ({chosen})."
    if chosen.startswith(COMPILED):
        return f"Handed back: the model under {chosen}, which is faster than anything with patches."
    return "Handed back: the model as it was, since nothing made the whole faster."
