"""How dangerous acts are confirmed in the languages that Turnkeeper knows: data, no code.

For each language: words that confirm, words for acts that cannot be taken back, and how they follow each other.
A phrase is a verb and an act with at most `gap` characters between them. The first entries are those of
the incident behind seed 001. To add a language, add a row; users add whole phrases of their own in the
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final


class Language:
    """One language's words. All are matched in lower case and NFKC, so they are written that way here."""

    def __init__(
        self,
        name: str,
        verbs: tuple[str, ...],
        acts: tuple[str, ...],
        *,
        gap: int,
        spaced: bool,
        reversed_too: bool = False,
        not_after: str = "",
        not_before: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.verbs = verbs
        self.acts = acts
        self.gap = gap
        self.spaced = spaced
        self.reversed_too = reversed_too
        self.not_after = not_after
        """Characters that turn the verb behind them into its opposite."""
        self.not_before = not_before
        """Words that turn the verb before them into a question: "confirm whether"."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Verb, at most `gap` characters of the same sentence, act; in the other order too where one says so."""
        edge = r"\b" if self.spaced else ""
        verbs, acts = _any_of(self.verbs), _any_of(self.acts)
        if self.not_after:
            verbs = f"(?<![{self.not_after}]){verbs}"
        if self.not_before:
            verbs = rf"{verbs}(?!,? {_any_of(self.not_before)}\b)"
        between = f"[^.!?。！？\\n]{{0,{self.gap}}}?"
        forward = f"{edge}{verbs}{edge}{between}{edge}{acts}"
        if not self.reversed_too:
            return re.compile(forward)
        return re.compile(f"{forward}|{edge}{acts}{between}{edge}{verbs}")


def _any_of(words: tuple[str, ...]) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


LANGUAGES: Final = (
    Language(
        "English",
        ("confirm", "confirmed", "confirming", "i confirm", "yes", "yes please", "approved", "i approve", "i agree to", "go ahead", "proceed"),
        (
            "forced restart", "forced reboot", "force restart", "force reboot", "force a reboot", "force a restart",
            "shutdown", "shut down", "shutting down", "restart", "reboot", "power off", "poweroff",
            "delete everything", "delete all", "delete it all", "delete the", "delete it", "delete them", "delete that", "delete this", "deletion", "erase", "wipe", "factory reset",
            "format the disk", "format disk", "drop table", "drop database", "drop the", "rm -rf", "force push",
            "overwrite", "purge", "destroy", "terminate",
        ),
        gap=24,
        spaced=True,
        not_before=("that", "whether", "if", "when", "what", "which", "how", "once", "before", "after"),
    ),
    Language(
        "simplified Chinese",
        ("确认", "确定", "是的", "同意"),
        (
            "强制重开机", "强制重启", "强制重开", "重新启动", "重启", "重开机", "关机", "关闭主机", "断电",
            "全部删除", "删除全部", "删除所有", "删除", "清空", "清除", "抹掉", "格式化", "恢复出厂", "还原出厂", "强制推送", "覆盖", "销毁",
        ),
        gap=8,
        spaced=False,
        not_after="不未没沒别別",
    ),
    Language(
        "traditional Chinese",
        ("確認", "確定", "是的", "同意"),
        (
            "強制重開機", "強制重開", "強制重啟", "重新啟動", "重啟", "重開機", "關機", "關閉主機", "斷電",
            "全部刪除", "刪除全部", "刪除所有", "刪除", "清空", "清除", "抹除", "格式化", "恢復出廠", "還原出廠", "強制推送", "覆蓋", "銷毀",
        ),
        gap=8,
        spaced=False,
        not_after="不未没沒别別",
    ),
    Language(
        "Japanese",
        ("確認", "承認", "はい", "実行して", "同意", "了承"),
        (
            "強制再起動", "再起動", "リブート", "シャットダウン", "電源オフ", "電源を切", "全削除", "すべて削除", "全て削除",
            "全部削除", "削除", "消去", "初期化", "フォーマット", "ワイプ", "上書き", "強制プッシュ", "破棄",
        ),
        gap=10,
        spaced=False,
        reversed_too=True,
    ),
    Language(
        "Korean",
        ("확인", "승인", "네,", "네 ", "예,", "예 ", "동의", "진행해"),
        (
            "강제 재부팅", "강제 재시작", "재부팅", "재시작", "시스템 종료", "종료", "전원 끄", "전체 삭제", "모두 삭제", "전부 삭제",
            "삭제", "초기화", "포맷", "공장 초기화", "덮어쓰", "강제 푸시", "지우", "파기",
        ),
        gap=10,
        spaced=False,
        reversed_too=True,
    ),
    Language(
        "Spanish",
        ("confirmo", "confirmar", "confirmado", "confirma", "sí", "de acuerdo", "apruebo"),
        (
            "reinicio forzado", "reinicio", "reiniciar", "reinicia", "apagado", "apagar", "apaga", "borrar todo",
            "borra todo", "borrado", "borrar", "eliminar todo", "elimina todo", "eliminar", "eliminación", "formatear",
            "formateo", "restablecimiento de fábrica", "restablecer de fábrica", "sobrescribir", "destruir", "purgar",
            "bórralo", "bórrala", "bórralos", "elimínalo", "elimínala", "elimínalos",
        ),
        gap=24,
        spaced=True,
        not_before=("que", "si", "cuando", "cómo"),
    ),
    Language(
        "German",
        ("bestätige", "bestätigt", "bestätigen", "ich bestätige", "ja", "einverstanden", "genehmigt"),
        (
            "erzwungenen neustart", "erzwungener neustart", "neustart", "neu starten", "neustarten", "herunterfahren",
            "ausschalten", "abschalten", "alles löschen", "lösche alles", "lösche", "lösch", "löschung", "löschen", "formatieren",
            "werkseinstellungen", "zurücksetzen", "überschreiben", "vernichten", "leeren",
        ),
        gap=24,
        spaced=True,
        reversed_too=True,
        not_before=("dass", "ob", "wenn", "wann", "wie", "was"),
    ),
    Language(
        "French",
        ("je confirme", "confirme", "confirmer", "confirmé", "oui", "d'accord", "j'approuve"),
        (
            "redémarrage forcé", "redémarrage", "redémarrer", "redémarre", "l'arrêt", "arrêt du", "arrêter", "éteindre",
            "extinction", "tout supprimer", "supprime tout", "supprime", "supprimer", "suppression", "tout effacer", "efface tout",
            "effacer", "effacement", "formater", "formatage", "réinitialisation", "réinitialiser", "écraser", "détruire",
        ),
        gap=24,
        spaced=True,
        not_before=("que", "si", "quand", "comment"),
    ),
    Language(
        "Portuguese",
        ("confirmo", "confirmar", "confirmado", "confirma", "sim", "de acordo", "aprovo"),
        (
            "reinicialização forçada", "reinício forçado", "reinicialização", "reinício", "reiniciar", "reinicie",
            "desligamento", "desligar", "desligue", "apagar tudo", "apague tudo", "apagar", "apague", "excluir tudo", "exclua tudo", "exclua",
            "excluir", "exclusão", "eliminar tudo", "eliminar", "formatar", "formatação", "redefinição de fábrica",
            "restauração de fábrica", "sobrescrever", "destruir",
        ),
        gap=24,
        spaced=True,
        not_before=("que", "se", "quando", "como"),
    ),
    Language(
        "Russian",
        ("подтверждаю", "подтвердить", "подтверждено", "да", "согласен", "согласна", "одобряю"),
        (
            "принудительную перезагрузку", "принудительная перезагрузка", "перезагрузку", "перезагрузить", "перезагрузка",
            "перезапуск", "перезапустить", "выключение", "выключить", "отключение", "удалить всё", "удалить все", "удали всё",
            "удали все", "удаление", "удалить", "удали", "удаляй", "перезагрузи", "стереть", "очистить", "очистку", "форматирование", "форматировать",
            "сброс", "сбросить", "перезаписать", "уничтожить",
        ),
        gap=24,
        spaced=True,
        not_before=("что", "ли", "если", "когда", "как"),
    ),
)  # fmt: skip
"""The languages, each a row."""


class Confirmations:
    """Phrases that confirm something dangerous: whole phrases, and per language verb and act near each other.

    A phrase is found anywhere in a sentence, whatever its case, width and spacing.
    """

    def __init__(self, phrases: tuple[str, ...] = (), languages: tuple[Language, ...] = LANGUAGES) -> None:
        self.phrases = phrases
        self.languages = languages

    def with_phrases(self, more: Iterable[str]) -> Confirmations:
        """These, and a user's own phrases."""
        return Confirmations((*self.phrases, *more), self.languages)


BUILT_IN: Final = Confirmations()
