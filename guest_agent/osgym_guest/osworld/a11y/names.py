"""Names of the roles and states of AT-SPI, by their numbers (atspi-constants.h of at-spi2-core 2.46)."""

from __future__ import annotations

_ROLES = """
    invalid accelerator-label alert animation arrow calendar canvas check-box check-menu-item
    color-chooser column-header combo-box date-editor desktop-icon desktop-frame dial dialog
    directory-pane drawing-area file-chooser filler focus-traversable font-chooser frame glass-pane
    html-container icon image internal-frame label layered-pane list list-item menu menu-bar menu-item
    option-pane page-tab page-tab-list panel password-text popup-menu progress-bar push-button
    radio-button radio-menu-item root-pane row-header scroll-bar scroll-pane separator slider
    spin-button split-pane status-bar table table-cell table-column-header table-row-header
    tearoff-menu-item terminal text toggle-button tool-bar tool-tip tree tree-table unknown viewport
    window extended header footer paragraph ruler application autocomplete editbar embedded entry chart
    caption document-frame heading page section redundant-object form link input-method-window table-row
    tree-item document-spreadsheet document-presentation document-text document-web document-email
    comment list-box grouping image-map notification info-bar level-bar title-bar block-quote audio
    video definition article landmark log marquee math rating timer static math-fraction math-root
    subscript superscript description-list description-term description-value footnote content-deletion
    content-insertion mark suggestion
"""

_STATES = """
    invalid active armed busy checked collapsed defunct editable enabled expandable expanded focusable
    focused has_tooltip horizontal iconified modal multi_line multiselectable opaque pressed resizable
    selectable selected sensitive showing single_line stale transient vertical visible
    manages_descendants indeterminate required truncated animated invalid_entry supports_autocompletion
    selectable_text is_default visited checkable has_popup read_only
"""

ROLES = _ROLES.split()
STATES = _STATES.split()

ROLE_EXTENDED = ROLES.index("extended")
ROLE_TERMINAL = ROLES.index("terminal")

ACTIVE = 1 << STATES.index("active")
FOCUSABLE = 1 << STATES.index("focusable")
FOCUSED = 1 << STATES.index("focused")
SELECTABLE = 1 << STATES.index("selectable")
SHOWING = 1 << STATES.index("showing")
VISIBLE = 1 << STATES.index("visible")
MANAGES_DESCENDANTS = 1 << STATES.index("manages_descendants")


def role_name(role: int) -> str | None:
    """Return the tag of a role; None for an extended or newer role, which only the application knows."""
    return ROLES[role] if 0 <= role < len(ROLES) and role != ROLE_EXTENDED else None


def state_names(states: int) -> list[str]:
    """Return the names of the states that are set in a bit mask."""
    return [name for bit, name in enumerate(STATES) if states >> bit & 1]
