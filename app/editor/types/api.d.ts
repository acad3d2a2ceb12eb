// What the page asks the server. Written by `python -m tests.app.studio.web.endpoint_types`.
declare namespace Api {
  /** Each question: what is sent, and what is answered. */
  interface Questions {
    add_scaffold: [AddScaffold, Written]
    ask_chat: [AskChat, AskedChat]
    batch_decide: [DecideRows, BegunRows]
    batch_decided: [OneDecidedBatch, LatestDecisions]
    batch_files: [BatchFile, ExportedFiles]
    batch_fit: [FitTemperature, FittedTemperature]
    batch_form: [Nothing, BatchFormKept]
    batch_grade: [GradeBatch, JobState<Record<string, any>>]
    batch_held: [RowsWanted, Held]
    batch_keep: [BatchForm, Kept]
    batch_open: [OpenRow, Opened]
    batch_read: [RowsWanted, RowsRead]
    batch_resume: [OneBatch, JobState<Record<string, any>>]
    batch_row: [OneRow, RowWhole]
    batch_score: [ScoreRow, RowScored]
    batch_start: [BatchWanted, JobState<Record<string, any>>]
    batch_state: [BatchSince, LatestBatch]
    benchmarks: [Nothing, Benchmarks]
    browse: [Nothing, Browsed]
    cache_budget: [StoreSize, Gone]
    cache_delete: [DeleteSegments, Gone]
    cache_keys: [WantedSegments, SegmentKeys]
    cache_list: [SegmentPage, SegmentList]
    cache_next: [StoreSize, WouldGo]
    cache_pin: [PinSchema, Pins]
    cache_prune: [StoreSize, Gone]
    cache_state: [Nothing, StoreState]
    cache_surplus: [StoreSize, Surplus]
    cache_verify: [VerifyStore, JobState<Verified>]
    cache_weigh: [DeleteSegments, Weighed]
    check: [Check, CheckedTexts]
    choose_folder: [Choose, Files]
    compare_file: [CompareFile, FileCompared]
    compare_model: [CompareModel, JobState<ComparedModels>]
    compare_runs: [SomeRuns, RunsBeside]
    compare_server: [CompareServer, JobState<ComparedModels>]
    compare_texts: [CompareTexts, TextsCompared]
    compare_version: [CompareVersion, TextsCompared]
    count_tokens: [OneText, Counted]
    decide_prompt: [DecidePrompt, BegunDecisions]
    delete_batches: [SomeBatches, DeletedBatches]
    delete_chat: [OneChat, DeletedChat]
    delete_runs: [SomeRuns, DeletedRuns]
    draw_hits: [Nothing, Drawn]
    draw_own_runs: [OwnRuns, DrawnRuns]
    draw_runs: [SomeRuns, Drawn]
    draw_sweep: [DrawnReport, Drawn]
    edit_form: [EditForm, EditedForm]
    edit_prompt: [EditPrompt, Prompted]
    encode_all: [Work, JobState<EncodeReport>]
    expect_sweep: [WantedSweep, Expected]
    export_as: [Export, Exported]
    find_fidelity: [OfNow, KnownFidelity]
    find_modules: [Find, FoundModules]
    find_runs: [FindRuns, FoundRuns]
    fix_document: [FixDocument, Fixed]
    follow_schema: [Follow, NewPrompt]
    forget_model: [ForgetModel, RecentList]
    forget_recent: [Forget, RecentEntries]
    fork_chat: [OneTurn, ChatFrame]
    format_document: [OneText, Written]
    go_on_chat: [GoOn, ChatFrame]
    import_runs: [ImportRuns, ImportedRuns]
    job_state: [OneJob, JobState<Record<string, any>>]
    known_models: [Nothing, KnownTable]
    label_run: [LabelRun, Labelled]
    list_batches: [Nothing, KeptBatches]
    list_chats: [Nothing, ChatsHeld]
    list_files: [Nothing, Files]
    list_help: [Nothing, HelpTitles]
    list_runs: [Nothing, KeptRuns]
    list_samples: [Nothing, Gallery]
    look_at_files: [LookAtFiles, FilesSeen]
    look_at_model: [LookAtModel, Looked]
    measure: [Measure, Measured]
    measure_fidelity: [Work, JobState<MeasuredFidelity>]
    model: [Nothing, ModelState]
    models_state: [Nothing, ModelsState]
    name_batch: [NameBatch, Kept]
    name_model: [NameModel, ServedNow]
    new_workspace: [New, Opened]
    open_chat: [OneChat, ChatFrame]
    open_file: [OpenFile, Opened]
    open_imported: [OpenImported, Opened]
    open_sample: [OpenSample, Opened]
    open_sample_schema: [OpenSample, Opened]
    open_shelved: [OpenShelved, Opened]
    open_text: [OpenText, Opened]
    open_workspace: [Nothing, Start]
    preview_chat: [Texts, ChatFrame]
    preview_fix: [FixDocument, FixPreview]
    preview_import: [ImportFiles, JobState<ImportPreview>]
    rate_answer: [RateAnswer, Labelled]
    read_form: [Texts, FormOfBoth]
    read_help: [OneDocument, HelpDocument]
    read_prompt: [Read, Reads]
    recent: [Nothing, RecentEntries]
    record_schema: [Nothing, RecordedSchema]
    remove_report: [NamedReport, KeptReports]
    rename_file: [Rename, FileSaved]
    rename_name: [RenameName, Renamed]
    report_files: [NamedReport, ReportFiles]
    restore_chat: [RestoreChat, Opened]
    restore_run: [RestoreRun, Opened]
    run_prompt: [Work, JobState<RunFrame>]
    save_as: [SaveAs, FileSaved]
    save_draft: [SaveDraft, DraftSaved]
    save_file: [SaveFile, FileSaved]
    schema_sizes: [Texts, SchemaSizes]
    select_turn: [OneTurn, ChatFrame]
    served: [Since, ServedNow]
    server_models: [AskServer, ServerModels]
    share_runs: [ShareRuns, SharedRuns]
    shelf: [Nothing, Shelf]
    shelve: [Shelve, Shelved]
    show_kept_run: [OneKeptRun, OldRun]
    show_report: [NamedReport, NamedAndShown]
    show_run: [OneRun, OldRun]
    start_sweep: [StartSweep, JobState<MeasuredSweep>]
    starting_points: [Nothing, Starts]
    stop_job: [OneJob, Done]
    switch_api: [SwitchApi, ServedNow]
    switch_model: [SwitchModel, JobState<Switched>]
    time_again: [TimeAgain, JobState<RunFrame>]
    wrap_prompt: [Both, NewPrompt]
    write_chat: [OneTurn, ChatPrompt]
    write_snippet: [WriteSnippet, Snippet]
  }

  interface AddScaffold {
    schema: string
    modules: string[]
    origin?: string
  }

  interface Argument {
    path: string
    argument: string
    value: string
  }

  interface AskChat extends Texts {
    key: string
    id?: string
    parent?: string
    question: string
    settings?: Record<string, any>
    opening?: ChatOpening | null
  }

  interface AskServer {
    base_url: string
    api_key?: string
  }

  interface AskedChat {
    chat: ChatFrame
    job: JobState<Exchange>
  }

  interface Attribute {
    name: string
    detail: string
  }

  interface AxisWords {
    name: "cached" | "new" | "modules" | "scope" | "repair" | "prompts"
    meaning: string
    values: string[]
  }

  interface Basis {
    digest: string
    stale: boolean
    tree?: TreeRow[]
    words?: WordsOfBoth
  }

  interface BatchFile {
    key: string
    form: "csv" | "json" | "promptfoo" | "langfuse"
  }

  interface BatchForm {
    form: Record<string, any>
  }

  interface BatchFormKept {
    form: Record<string, any>
    kinds: CheckKind[]
    most: number
    template: string
  }

  interface BatchKept {
    key: string
    name: string
    started: string
    state: "working" | "done" | "stopped" | "failed" | "elsewhere"
    schema: string
    model: string
    mode: "both" | "cached"
    decides: boolean
    rows: number
    answered: number
    failed: number
    judged: number
    passed: number
  }

  interface BatchSince {
    key?: string
    known?: number
    only?: boolean
  }

  interface BatchState {
    key: string
    name: string
    state: "working" | "done" | "stopped" | "failed" | "left" | "elsewhere"
    fault: string
    unkept: string
    working: string | null
    mode: "both" | "cached"
    texts: DigestsOfBoth
    alone: boolean
    settings: Record<string, any>
    held: Held
    model: string
    schema: string
    started: string
    left_s: number | null
    ended: number
    rows: RowShown[]
    summary: BatchSummary
  }

  interface BatchSummary {
    rows: number
    answered: number
    failed: number
    scored: number
    score_cached: number | null
    score_uncached: number | null
    graded: number
    ungraded: number
    grade_cached: number | null
    grade_uncached: number | null
    checked: number
    passed_cached: number
    passed_uncached: number
    verdicts_changed: number
    compared: number
    same_first_token: number
    same_text: number
    kl_mean: number | null
    kl_checked: number
    over_limit: number
    ttft_cached_ms: number | null
    ttft_uncached_ms: number | null
    timed: number
    cold: boolean
    unread: number
    encoded: number
    reused: number
    computed: number
  }

  interface BatchWanted extends RowsWanted {
    key: string
    mode?: "both" | "cached"
    checks?: WantedCheck[]
    combine?: "all" | "any"
  }

  interface BatchesHeld {
    bytes: number
    most_batches: number
    most_bytes: number
    file: string
    warnings: string[]
  }

  interface BegunDecisions {
    job: JobState<DecidedPrompt> | null
    faults: QuestionFault[]
  }

  interface BegunRows {
    job: JobState<Record<string, any>> | null
    faults: QuestionFault[]
  }

  interface Belongs {
    schema: string
    prompt: string
    settings: string
    model: string
  }

  interface Benchmarks {
    axes: AxisWords[]
    models: ShapeWords[]
    kept: KeptReport[]
    under_way: string
  }

  interface Both {
    schema: string
    prompt: string
  }

  interface Browsed {
    folder: string
    entries: Entry[]
  }

  interface CatalogueModel {
    name: string
    title: string
    bytes: number
    format: string
    licence: string
    about: string
    here: boolean
  }

  interface ChatFrame {
    id: string
    name: string
    of: ChatTexts
    modules: string[]
    question: string
    leaf: string
    exchanges: Exchange[]
  }

  interface ChatOpening {
    answer: string
    model: string
    ttft_ms?: number | null
    from_cache?: number | null
    computed?: number | null
    generated?: number
  }

  interface ChatPrompt {
    prompt: string
  }

  interface ChatSummary {
    id: string
    title: string
    schema: string
    changed: string
    turns: number
  }

  interface ChatTexts {
    schema: string
    prompt: string
  }

  interface ChatsHeld {
    chats: ChatSummary[]
    most: number
  }

  interface Check extends Texts {
    fallback?: string | null
    known?: string | null
  }

  interface CheckKind {
    name: string
    meaning: string
  }

  interface CheckVerdict {
    check: string
    cached: string | null
    uncached: string | null
  }

  interface CheckedPrompt {
    diagnostics: Mark[]
    name: string
    question: string
    decides: PageQuestion[]
  }

  interface CheckedSchema {
    diagnostics: Mark[]
    name: string
    ok: boolean
    modules: number
  }

  interface CheckedTexts {
    texts: DigestsOfBoth
    schema: CheckedSchema
    prompt: CheckedPrompt
    basis: Basis
    picks: Picks
  }

  interface Choose {
    path: string
  }

  interface CompareFile {
    origin: string
    text: string
  }

  interface CompareModel extends WantedModel {
    key: string
    run: string
    apart?: boolean
  }

  interface CompareServer extends AskServer {
    key: string
    run: string
    model: string
  }

  interface CompareTexts {
    left: Both
    right: Both
  }

  interface CompareVersion {
    key: string
    page: Page
  }

  interface ComparedModels {
    first: string
    second: string
    run: RunFrame | null
  }

  interface ComparedSoFar {
    ttft_speedup?: number
    least_speedup?: number
    most_speedup?: number
    first_token_agrees?: boolean
    kl_first_token?: number
    same_text?: boolean
  }

  interface Counted {
    tokens: number
  }

  interface DecidePrompt extends Work {
    questions: PageQuestion[]
  }

  interface DecideRows extends RowsWanted {
    key: string
    mode?: "both" | "cached"
    questions: PageQuestion[]
  }

  interface DecidedAnswer {
    probabilities: number[]
    best: number
    expected: number
    order_flips: number
  }

  interface DecidedBatch {
    key: string
    name: string
    schema: string
    model: string
    started: string
    state: "working" | "done" | "stopped" | "failed" | "left" | "elsewhere"
    fault: string
    unkept: string
    total: number
    permutations: number
    rows: DecidedRow[]
    figures: QuestionFigures[]
  }

  interface DecidedPrompt {
    schema: string
    of: Belongs
    settings: Record<string, any>
    model: ModelOfRun
    questions: DecidedQuestion[]
    sides: DecidedSides
    encoded: number
    encode_ms: number
    warnings: string[]
  }

  interface DecidedQuestion {
    kind: "predicate" | "choice" | "score"
    question: string
    options: string[]
    cached: DecidedAnswer
    uncached: DecidedAnswer
  }

  interface DecidedRow {
    line: number
    id: string
    text: string
    fault: string
    decisions: RowDecision[]
  }

  interface DecidedSide {
    ms: number
    from_cache: number
    computed: number
  }

  interface DecidedSides {
    cached: DecidedSide
    uncached: DecidedSide
  }

  interface DeleteSegments {
    keys: string[]
  }

  interface DeletedBatches {
    deleted: number
  }

  interface DeletedChat {
    id: string
  }

  interface DeletedRuns {
    deleted: number
  }

  interface Difference {
    cached: [string, boolean][]
    uncached: [string, boolean][]
    differing: number
    first: FirstDifference | null
  }

  interface DifferenceRow {
    left: Line | null
    right: Line | null
    changed: boolean
    skipped: number
  }

  interface DigestsOfBoth {
    schema: string
    prompt: string
  }

  interface Done {
  }

  interface DraftSaved {
    revision?: number
    saved?: string
    conflict?: Workspace
    message?: string
  }

  interface Drawn {
    figure: Figure
  }

  interface DrawnReport {
    name: string
    view?: "times" | "stages"
  }

  interface DrawnRuns {
    figure: Figure
    runs: RunSummary[]
  }

  interface EditForm extends Texts {
    act: "text" | "rename" | "parameter" | "add" | "remove" | "move" | "write" | "ask"
    card?: number
    text?: string
    what?: string
    number?: number
    default?: string | null
  }

  interface EditPrompt extends Texts {
    edit: Argument | Pick | Move
  }

  interface EditedForm {
    schema: string
    prompt: string
    card: number
    form: FormOfBoth
  }

  interface EditorWords {
    elements: Word[]
    attributes: Record<string, Attribute[]>
    help: Record<string, string>
  }

  interface EncodeReport {
    encoded: number
    reused: number
    elsewhere: number
    kept: number
    total: number
    budget: number
    tokens: number
    seconds: number
    bytes: number
    warnings: string[]
  }

  interface Encoded {
    rows: number
    tokens: number
    anchored: number
    scope: string
  }

  interface EncodingFrame {
    state: "waiting" | "working" | "streaming" | "done" | "measured" | "stopped" | "not run" | "failed"
    waits: boolean
    working: string
    done: number
    total: number
    modules: string[]
    segments: number
    tokens: number
    ms: number | null
    others: number
    others_ms: number | null
  }

  interface Entry {
    name: string
    kind: "schema" | "prompt" | "other"
    schema: string
    size: number
    changed: number
  }

  interface Eviction {
    at: number
    key: string
    schema: string | null
    path: string | null
    bytes: number
    reason: string
  }

  interface Exchange {
    id: string
    parent: string
    question: string
    answer: string
    state: "working" | "done" | "stopped" | "failed"
    working: string
    message: string
    model: string
    ttft_ms: number | null
    from_cache: number | null
    computed: number | null
    unread?: string
    generated: number
    ended: "" | "eos" | "length" | "stop"
  }

  interface Expected {
    seconds: number | null
    points: number
    basis: string
  }

  interface Export extends Texts {
    form: string
  }

  interface Exported {
    text: string
    filename: string
    media_type: string
    notes: string[]
  }

  interface ExportedFiles {
    files: Exported[]
  }

  interface Fault {
    key: string
    file: string
    what: string
  }

  interface FaultOfRows {
    message: string
    line: number
    column?: string
    code?: string
    rows: number
  }

  interface Fidelity {
    kl_first_token: number
    first_token_agrees: boolean
    answer_agreement: number
    kl_mean: number
    kl_worst: number
    worst_position: number
    tokens_read: number
    read_to_end: boolean
    flips: Flip[]
    modules: ModuleFidelity[]
    remedies: Remedy[]
    advice: string
    complete: boolean
    scope: string
    repair: string
    worst: string | null
    improvements: Remedy[]
    best: Remedy | null
  }

  interface FidelitySummary {
    measured: string
    kl_mean: number
    kl_first_token: number
    first_token_agrees: boolean
    flips: number
    worst: string | null
    advice: string
  }

  interface Figure {
    data: any[]
    layout: Record<string, any>
  }

  interface FileCompared {
    name: string
    difference?: TextDifference
    message?: string
  }

  interface FileSaved {
    saved?: string
    origin?: string
    stamp?: Stamp
    files?: string[]
    refused?: "elsewhere" | "unknown" | "gone" | "changed"
    message?: string
  }

  interface FileSeen {
    origin: string
    state: "same" | "changed" | "gone"
    message: string
  }

  interface Files {
    folder: boolean
    root: string
    files: string[]
  }

  interface FilesSeen {
    files: FileSeen[]
  }

  interface Find extends Texts {
    words: string
  }

  interface FindRuns {
    words: string
  }

  interface FirstDifference {
    word: number
    cached: string
    uncached: string
  }

  interface FitTemperature {
    key: string
    question: number
  }

  interface FittedTemperature {
    cached?: SideFit
    uncached?: SideFit
  }

  interface FixDocument extends Texts {
    kind: "schema" | "prompt"
    code: string
    at: number
    fix: string
  }

  interface FixPreview {
    removed: string[]
    added: string[]
    reads: ReadText[]
    above: number
    below: number
    errors: number
  }

  interface Fixed {
    text: string
    kind: "schema" | "prompt"
  }

  interface Flip {
    position: number
    uncached: string
    cached: string
    before: string
    kl: number
  }

  interface Folded {
    first: number
    last: number
  }

  interface Follow extends Both {
    former: string
  }

  interface Forget {
    origin: string
  }

  interface ForgetModel {
    name: string
  }

  interface FormCard {
    kind: "schema" | "prompt" | "turn" | "module" | "union" | "import" | "text" | "locked"
    depth: number
    name: string
    path: string
    text: string
    why: string
    at: number
    params: Parameter[]
  }

  interface FormOfBoth {
    schema: FormOfOne
    prompt: FormOfOne
    question: number
  }

  interface FormOfOne {
    cards: FormCard[]
    error: string
    at: number
  }

  interface FoundModules {
    paths: string[]
  }

  interface FoundRuns {
    ids: string[]
  }

  interface Gallery {
    samples: Sample[]
  }

  interface GoOn extends Texts {
    id: string
  }

  interface Gone {
    removed: Removed
  }

  interface Grade {
    score: number | null
    reply: string
  }

  interface GradeBatch {
    key: string
    job: string
    template: string
    url?: string
    model?: string
  }

  interface Held {
    modules: string[]
    question: string
    settings: SettingHeld[]
  }

  interface HelpBlock {
    kind: "heading" | "paragraph" | "item" | "code" | "table"
    level: number
    spans?: HelpSpan[]
    rows?: HelpSpan[][][]
    text?: string
    marker?: string
    anchor?: string
  }

  interface HelpDocument {
    name: string
    blocks: HelpBlock[]
  }

  interface HelpSpan {
    text: string
    style: "text" | "code" | "strong" | "em"
    href?: string
  }

  interface HelpTitle {
    name: string
    title: string
  }

  interface HelpTitles {
    documents: HelpTitle[]
  }

  interface ImportFile {
    path: string
    data: string
  }

  interface ImportFiles {
    key: string
    files: ImportFile[]
    kind?: string
    name?: string
    row?: number
    param_length?: number
    split?: "whole" | "headings" | "tokens"
    tokens?: number
    titles?: boolean
    encoding?: "utf-8" | "windows-1252" | "utf-16"
  }

  interface ImportPreview {
    name?: string
    kind?: string
    schema?: string
    prompt?: string
    modules?: number
    notes?: string[]
    options?: string[]
    encoding?: "utf-8" | "windows-1252" | "utf-16"
    message?: string
  }

  interface ImportRuns {
    name: string
    text: string
  }

  interface ImportedRuns {
    read: number
    added: number
  }

  interface JobState<Result> {
    key: string
    what: string
    done: number
    total: number
    over: boolean
    fault: string
    result: Result | null
  }

  interface Kept {
  }

  interface KeptBatches {
    batches: BatchKept[]
    held: BatchesHeld
    working: string | null
  }

  interface KeptFidelity {
    measured: string
    found: Fidelity
  }

  interface KeptReport {
    name: string
    started: string
    axis: string
    model: string
    points: number
    ended: string
  }

  interface KeptReports {
    kept: KeptReport[]
  }

  interface KeptRuns {
    runs: RunSummary[]
    held: RunsHeld
  }

  interface KeptWorkspace {
    key: string
    name: string
    saved: string
    schema: string
    prompt: string
  }

  interface KnownFidelity {
    kept: MeasuredFidelity | null
    under_way: string
  }

  interface KnownRow {
    title: string
    layers: number
    heads: number
    kv_heads: number
    head_size: number
    bytes_per_token: number
    unshared: number
    paper: number | null
  }

  interface KnownTable {
    models: KnownRow[]
  }

  interface LabelRun {
    id: string
    name?: string | null
    note?: string | null
  }

  interface Labelled {
    run?: RunSummary
  }

  interface LatestBatch {
    batch?: BatchState
  }

  interface LatestDecisions {
    batch?: DecidedBatch
  }

  interface Line {
    number: number
    parts: LinePart[]
  }

  interface LinePart {
    text: string
    changed: boolean
  }

  interface LookAtFiles {
    files: SeenFile[]
  }

  interface LookAtModel extends WantedModel {
    ask?: boolean
  }

  interface Looked {
    look: ModelLook | null
    absent: boolean
    sentence: string
  }

  interface Mark {
    code: string
    severity: "error" | "warning" | "info"
    message: string
    fixes: string[]
    from: number
    to: number
    line: number
    column: number
  }

  interface MarksOfBoth {
    schema: Mark[]
    prompt: Mark[]
  }

  interface Measure extends Texts {
    settings?: Record<string, any>
  }

  interface Measured {
    sizes: Record<string, ModuleSize>
    positions?: number
    strip: Strip | null
    of?: Belongs
    settings?: Record<string, any>
    model?: ModelOfRun
    diagnostics: MarksOfBoth
  }

  interface MeasuredFidelity {
    schema: string
    of: Belongs
    settings: Record<string, any>
    model: ModelOfRun
    measured: string
    found: Fidelity
    unkept: string
  }

  interface MeasuredSweep {
    name: string
    left_seconds: number | null
    report: ShownReport | null
  }

  interface MemoryUse {
    bytes: number
    budget: number
  }

  interface Missing {
    at: number
    key: string
    schema: string
    path: string
    bytes: number
    ms: number
    reason: string
    meaning: string
    gone_at: number | null
  }

  interface ModelChoice {
    name: string
    device: string
    dtype: string
    weights: "auto" | "packed" | "plain"
    quantize: "none" | "int8" | "int4"
  }

  interface ModelDetails {
    model: string
    family: string
    positions: string
    path: string
    relocatable: boolean
    exact_up_to: number | null
    checks: Record<string, number>
    summary: string
    apart: string
    notes: string[]
    context_length: number
    layers: number
    heads: number
    head_size: number
    bytes_per_token: number
    parameters: number
    weight_bytes: number
    device: string
    dtype: string
    weights: string
    own_name: string
    format: string
    file_bytes: number
    why_larger: string
    fingerprint: string
  }

  interface ModelFacts {
    digest: string
    about: string
    stored: string
    name: string
    own_name: string
    family: string
    device: string
    dtype: string
    weights: string
    context_length: number
    bytes_per_token: number
    summary: string
  }

  interface ModelLook {
    kind: "bundled" | "random" | "folder" | "file" | "hub"
    family: string
    parameters: number
    layers: number
    heads: number
    kv_heads: number
    head_size: number
    context_length: number
    bytes_per_token: number
    device: string
    dtype: string
    weight_bytes: number
    format: string
    file_bytes: number
    why_larger: string
    working_bytes: number
    working_tokens: number
    fetch_bytes: number
    verdict: "fits" | "tight" | "apart" | "refused" | "unknown"
    needed: number
    free: number
    total: number
  }

  interface ModelOfRun {
    name: string
    fingerprint: string
    device: string
    dtype: string
    weights: string
  }

  interface ModelOptions {
    device: Option[]
    dtype: Option[]
    weights: Option[]
    quantize: Option[]
  }

  interface ModelState {
    loading: string
    model: ModelFacts | null
    number: number
    switching: string
  }

  interface ModelsState {
    loaded: ModelDetails | null
    wanted: ModelChoice
    options: ModelOptions | null
    switching: JobState<Switched> | null
    running: number
    recent: ModelChoice[]
    catalogue: CatalogueModel[]
    shapes: string[]
  }

  interface ModuleBytes {
    schema: string
    path: string | null
    segments: number
    bytes: number
  }

  interface ModuleFidelity {
    path: string
    tokens: number
    dependence: number
    key_deviation: number
    value_deviation: number
    harm: number
    mends: number
  }

  interface ModuleSize {
    tokens: number
    total: number
    bytes: number
    cached: "none" | "disk" | "memory"
  }

  interface Move {
    path: string
    later: boolean
  }

  interface NameBatch {
    key: string
    name: string
  }

  interface NameModel {
    names: string[]
  }

  interface NamedAndShown {
    name: string
    report: ShownReport
  }

  interface NamedReport {
    name: string
  }

  interface New extends Shelve {
    start?: string
    text?: string
  }

  interface NewPrompt {
    prompt: string
  }

  interface NextOut {
    key: string
    schema: string | null
    path: string | null
    tokens: number
    bytes: number
    seconds: number
    last_used: number
  }

  interface Nothing {
  }

  interface OfNow {
    schema: string
    prompt: string
    settings: Record<string, any>
  }

  interface Offer {
    words: string
    sample?: string
    file?: string
  }

  interface OldRun {
    run: RunFrame
  }

  interface OneBatch {
    key: string
  }

  interface OneChat {
    id: string
  }

  interface OneDecidedBatch {
    key?: string
  }

  interface OneDocument {
    name: string
  }

  interface OneJob {
    key: string
  }

  interface OneKeptRun {
    id: string
    schema?: string
  }

  interface OneRow {
    key: string
    number: number
  }

  interface OneRun {
    number: number
  }

  interface OneText {
    text: string
  }

  interface OneTurn extends OneChat {
    exchange: string
  }

  interface OpenFile extends Shelve {
    name: string
    encoding?: "utf-8" | "windows-1252" | "utf-16"
  }

  interface OpenImported extends Shelve {
    name: string
    schema: string
    prompt: string
  }

  interface OpenRow extends Shelve {
    key: string
    number: number
  }

  interface OpenSample extends Shelve {
    name: string
    prompt?: number
  }

  interface OpenShelved extends Shelve {
    key: string
  }

  interface OpenText extends Shelve {
    name: string
    text: string
    stamp?: Stamp
  }

  interface Opened {
    workspace?: Workspace
    kind?: "schema" | "prompt"
    encoding?: "utf-8" | "windows-1252" | "utf-16"
    message?: string
    told?: string
    offers?: Offer[]
  }

  interface Option {
    value: string
    meaning: string
    why_not: string
  }

  interface OwnRuns {
    schema: string
  }

  interface Page {
    name?: string
    schema: string
    prompt: string
    origin?: string
    prompt_origin?: string
    settings?: Record<string, any>
    files?: Record<string, any>
    base?: number
  }

  interface PageOption {
    label: string
    description: string
  }

  interface PageQuestion {
    kind: "predicate" | "choice" | "score"
    question: string
    options: PageOption[]
  }

  interface Parameter {
    name: string
    length: number
    default: string
  }

  interface Payback {
    first_ms: number | null
    runs: number | null
    words: string
  }

  interface Pick {
    path: string
    on: boolean
  }

  interface Picks {
    paths: string[]
    arguments: Record<string, Record<string, string>>
  }

  interface Piece {
    kind: "anonymous" | "module" | "argument" | "text"
    path: string
    start: number
    tokens: number
    cached: "none" | "disk" | "memory"
    bytes: number
    label: string
    why: string
    document: "schema" | "prompt" | ""
    at: number
  }

  interface PinSchema {
    schema: string
    pinned: boolean
  }

  interface Pins {
    pins: string[]
    pinned_until: Record<string, number>
  }

  interface Prompted {
    prompt: string
  }

  interface QuestionFault {
    number: number
    field: "question" | "options"
    message: string
  }

  interface QuestionFigures {
    title: string
    question: string
    kind: "predicate" | "choice" | "score"
    labels: string[]
    labelled: number
    unknown: number[]
    cached?: SideFigures
    uncached?: SideFigures
    reliability?: Figure
  }

  interface RateAnswer {
    id: string
    side: "cached" | "uncached"
    thumb?: "" | "up" | "down" | null
    note?: string | null
  }

  interface Rating {
    thumb: "" | "up" | "down"
    note: string
  }

  interface Ratings {
    cached: Rating
    uncached: Rating
  }

  interface Read extends Measure {
    borders?: boolean
  }

  interface ReadPassage {
    author: "template" | "anonymous" | "module" | "argument" | "text"
    path: string
    text: string
    tokens: number
    start: number
    cached: "none" | "disk" | "memory" | null
    bytes: number
    sees: number
    turn: number | null
    role: string
    document: "schema" | "prompt" | ""
    at: number
    end: number
    seam: boolean
    meets: string
    why: string
    borders: number[] | null
    specials: [number, number][]
  }

  interface ReadText {
    role: string
    path: string
    text: string
  }

  interface Reads {
    passages: ReadPassage[] | null
    tokens: number
    fault: string
  }

  interface RecentEntries {
    documents: RecentEntry[]
  }

  interface RecentEntry {
    origin: string
    name: string
    kind: string
    used: string
    file?: string
    sample?: string
    version?: string
    missing?: string
  }

  interface RecentList {
    recent: ModelChoice[]
  }

  interface RecordedSchema {
    name: string
    schema: string
    prompt: string
    requests: number
    notes: string[]
  }

  interface Remedy {
    what: string
    repair: string
    scaffold: string[]
    scope: string
    flips: number
    kl_worst: number
    kl_mean: number
    answer_agreement: number
    computed: number
  }

  interface Removed {
    segments: number
    bytes: number
  }

  interface Rename {
    origin: string
    name: string
  }

  interface RenameName extends Texts {
    kind: "schema" | "prompt"
    at: number
    name?: string
  }

  interface Renamed {
    noun: string
    name: string
    schema: string
    prompt: string
  }

  interface ReportFiles {
    name: string
    json: string
    csv: string
  }

  interface ReportedSweep {
    axis: "cached" | "new" | "modules" | "scope" | "repair" | "prompts"
    values: (number | string)[]
    cached: number
    modules: number
    new: number
    repeats: number
    seed: number
  }

  interface RestoreChat extends Shelve {
    id: string
  }

  interface RestoreRun extends Shelve {
    id: string
  }

  interface Result {
    name: string
    value: number | string
    samples_ms: number[]
    median_ms: number
    timeline_ms?: Record<string, number>
    tokens_per_s?: number
    encode_ms?: number
    kl_first_token?: number
  }

  interface ReuseFrame {
    scope: string
    repair: string
    why: string
    kl: number | null
    checked: boolean
    follows: boolean
    broken: boolean
  }

  interface RowChoice {
    label: string
    probability: number
    expected: number
  }

  interface RowDecision {
    gold: string
    cached?: RowChoice
    uncached?: RowChoice
  }

  interface RowFault {
    message: string
    line: number
    column?: string
    code?: string
  }

  interface RowScored {
    row: RowShown
    summary: BatchSummary
  }

  interface RowShown {
    number: number
    line: number
    id: string
    picks: string
    arguments: Record<string, string>
    settings: Record<string, string>
    text: string
    question: string
    state: "waiting" | "done" | "failed"
    fault?: RowFault
    cached?: SideShown
    uncached?: SideShown
    speedup?: number | null
    first_token_agrees?: boolean
    kl_first_token?: number | null
    over_limit?: boolean
    same_text?: boolean
  }

  interface RowWhole {
    row: RowShown
    prompt: string
    modules: string[]
    settings: SettingHeld[]
    reuse: string
    cached: SideWhole | null
    uncached: SideWhole | null
    difference: Difference | null
    checks: CheckVerdict[]
  }

  interface RowsRead {
    rows: number
    repeated: number
    looked: number
    faults: FaultOfRows[]
    faulty: number
    encoded: Encoded
  }

  interface RowsWanted extends Texts {
    source: "table" | "grid"
    table?: string
    grid?: WantedAxis[]
    alone?: boolean
    settings?: Record<string, any>
  }

  interface RunBeside {
    summary: RunSummary
    told: RunFrame
    schema: [string, boolean][]
    prompt: [string, boolean][]
    cached: [string, boolean][]
    uncached: [string, boolean][]
  }

  interface RunFrame {
    format: number
    kept: string
    number: number
    mode: "both" | "cached" | "uncached"
    question: string
    schema: string
    of: Belongs
    started: string
    settings: Record<string, any>
    placement: "compact" | "schema"
    model: ModelOfRun
    order: ("cached" | "uncached")[]
    repeat: number
    timings: number
    state: "waiting" | "working" | "streaming" | "done" | "measured" | "stopped" | "not run" | "failed"
    message: string
    warnings: string[]
    encoding: EncodingFrame
    sides: Sides
    comparison: ComparedSoFar
    payback: Payback | null
    difference: Difference | null
    fidelity: KeptFidelity | null
    reuse: ReuseFrame | null
  }

  interface RunSummary {
    id: string
    started: string
    name: string
    note: string
    schema: string
    digest: string
    model: string
    state: string
    scope: string
    repair: string
    reuse: string
    prompt: string
    cached_ms: number | null
    uncached_ms: number | null
    encode_ms: number | null
    first_ms: number | null
    speedup: number | null
    clear: boolean
    stages: StagesOfSides
    fidelity: FidelitySummary | null
    kl: number | null
    ratings: Ratings
    linked: string
  }

  interface RunsBeside {
    runs: RunBeside[]
  }

  interface RunsHeld {
    runs: number
    bytes: number
    most_runs: number
    most_bytes: number
    file: string
    warnings: string[]
  }

  interface Sample {
    name: string
    title: string
    description: string
    prompts: SamplePrompt[]
    program: string
  }

  interface SamplePrompt {
    picked: string[]
    words: string
  }

  interface SampleTitle {
    name: string
    title: string
  }

  interface SaveAs {
    name: string
    text: string
    stamp?: Stamp
  }

  interface SaveDraft extends Page {
    force?: boolean
  }

  interface SaveFile {
    origin: string
    text: string
    stamp?: Stamp
    force?: boolean
    here?: boolean
  }

  interface SchemaModule {
    path: string
    tokens: number
    bytes: number
    cached: "none" | "disk" | "memory"
  }

  interface SchemaSizes {
    model: string
    name: string
    modules: SchemaModule[]
    anonymous_tokens: number
    tokens: number
    bytes: number
    bytes_per_token: number
    memory: number
    disk: number
  }

  interface ScoreRow extends OneRow {
    side: "cached" | "uncached"
    score?: number | null
  }

  interface SeenFile {
    origin: string
    stamp: Stamp
  }

  interface SegmentKeys {
    keys: string[]
  }

  interface SegmentList {
    rows: SegmentRow[]
    all: SegmentSums
    most: number
  }

  interface SegmentPage extends WantedSegments {
    order?: "schema" | "path" | "scope" | "model" | "tokens" | "bytes" | "tier" | "hits" | "last_used"
    down?: boolean
    start?: number
  }

  interface SegmentRow {
    key: string
    schema: string
    path: string
    tokens: number
    bytes: number
    scope: string
    model: string
    hits: number
    seconds: number
    last_used: number
    pinned: boolean
    tier: "none" | "disk" | "memory"
  }

  interface SegmentSums {
    segments: number
    bytes: number
    tokens: number
    seconds: number
    pinned: number
  }

  interface ServedNow {
    state: "ok" | "loading" | "draining" | "off"
    model: string
    aliases: string[]
    own_aliases: string[]
    since: number | null
    keys: number
    origins: string[]
    requests: ServedRequest[]
    change: number
  }

  interface ServedRequest {
    number: number
    at: number
    path: string
    dialect: string
    model: string
    who: string
    status: number | null
    outcome: "waiting" | "answering" | "done" | "ended" | "refused"
    stopped: string
    sentence: string
    tokens: TokensOfRequest | null
    ttft_ms: number | null
    seconds: number
    id: string
    why: WhyRead | null
  }

  interface ServerModels {
    models: string[]
  }

  interface SettingForm {
    name: string
    kind: "flag" | "integer" | "number" | "choice" | "form" | "texts"
    label: string
    sentence: string
    default: any
    range: string
    unit?: string
    least?: number
    most?: number
    above?: boolean
    choices?: Record<string, string>
    pattern?: string
    examples?: string[]
    matters: "always" | "drawn" | "decided" | "never"
  }

  interface SettingHeld {
    name: string
    label: string
    value: string
    changed: boolean
  }

  interface ShapeWords {
    name: string
    words: string
  }

  interface ShareRuns extends SomeRuns {
    form: "html" | "json" | "promptfoo" | "promptfoo results" | "langfuse dataset" | "langfuse traces"
    base_url?: string
  }

  interface SharedRuns {
    filename: string
    media_type: string
    text: string
  }

  interface Shelf {
    shelf: KeptWorkspace[]
  }

  interface Shelve {
    page: Page
  }

  interface Shelved {
    key?: string
  }

  interface ShownReport {
    sweep: ReportedSweep
    model: Record<string, string | number>
    machine: Record<string, string | number>
    started: string
    seconds: number
    ended: string
    results: Result[]
  }

  interface SideFigures {
    accuracy: number
    macro_f1: number
    ece: number
    order_flips: number
    confusion: number[][]
  }

  interface SideFit {
    temperature: number
    fitted_on: number
    held_out: number
    ece_before: number
    ece_after: number
  }

  interface SideFrame {
    state: "waiting" | "working" | "streaming" | "done" | "measured" | "stopped" | "not run" | "failed"
    waits: boolean
    working: string
    done: number
    total: number
    text: string
    ttft_ms: number | null
    timeline_ms: Record<string, number>
    tokens: Record<string, number>
    tokens_per_second: number | null
    samples_ms: number[]
    cold_ms: number[]
    waited_ms: number
    ended: "" | "eos" | "length" | "stop"
    format_fault: string | null
  }

  interface SideShown {
    text: string
    ttft_ms: number
    tokens: Record<string, number>
    passed: boolean | null
    score: number | null
    grade?: Grade
  }

  interface SideWhole {
    text: string
    ttft_ms: number
    timeline_ms: Record<string, number>
    tokens: Record<string, number>
    ended: string
    format_fault: string | null
    warnings: string[]
  }

  interface Sides {
    cached: SideFrame
    uncached: SideFrame
  }

  interface Since {
    change?: number
  }

  interface Snippet {
    text: string
    folded: Folded[]
    notes: string[]
    schema: string
    fault?: string
  }

  interface SomeBatches {
    keys: string[]
  }

  interface SomeRuns {
    ids: string[]
  }

  interface StagesOfSides {
    cached: Record<string, number>
    uncached: Record<string, number>
  }

  interface Stamp {
    digest?: string
    bom?: boolean
    newline?: "\r\n" | "\n" | "\r"
  }

  interface Start {
    workspace: Workspace
    samples: SampleTitle[]
    folder: boolean
    root: string
    files: string[]
    settings: SettingForm[]
    tiers: TierWords[]
    timeline_parts: Record<"parse" | "plan" | "encode" | "load" | "repair" | "prefill" | "sample" | "questions" | "calibration", string>
    runs: RunFrame[]
  }

  interface StartSweep extends WantedSweep {
    key: string
  }

  interface StartTitle {
    name: string
    title: string
    about: string
  }

  interface Starts {
    starts: StartTitle[]
  }

  interface StoreSize {
    bytes: number
  }

  interface StoreState {
    modules: ModuleBytes[]
    schemas: string[]
    stats: StoreStats
    memory: MemoryUse
    pins: string[]
    pinned_until: Record<string, number>
    evictions: Eviction[]
    misses: Missing[]
    warnings: string[]
    folder: string
  }

  interface StoreStats {
    segments: number
    bytes: number
    hits: number
    misses: number
    corrupt: number
    evicted: number
    budget: number
    pinned: number
    kept: number
    kept_until: number | null
    max_age: number | null
    policy: "lru" | "cost"
    scheme: "plain" | "int8" | "int4"
    disk_free: number
    served: Record<string, any>[]
  }

  interface Strip {
    pieces: Piece[]
    total: number
    cached: number
    new: number
  }

  interface Surplus {
    surplus: Removed
    pinned: number
  }

  interface SwitchApi {
    on: boolean
  }

  interface SwitchModel extends WantedModel {
    key: string
    running?: "finish" | "stop"
    apart?: boolean
    fetch?: boolean
  }

  interface Switched {
    model: string
    device: string
    dtype: string
    seconds: number
  }

  interface TextDifference {
    rows: DifferenceRow[]
    removed: number
    added: number
    omitted: number
    coarse: boolean
  }

  interface Texts {
    schema?: string
    prompt?: string
    origin?: string
  }

  interface TextsCompared {
    schema: TextDifference
    prompt: TextDifference
  }

  interface TierWords {
    name: "none" | "disk" | "memory"
    label: string
    meaning: string
  }

  interface TimeAgain extends Work {
    number: number
  }

  interface TokensOfRequest {
    prompt: number
    read: number
    written: number
    rest: number
    generated: number
  }

  interface TreeRow {
    kind: "module" | "union"
    depth: number
    name?: string
    path?: string
    preview?: string
    params?: Parameter[]
  }

  interface Verified {
    segments: number
    bytes: number
    seconds: number
    faults: Fault[]
    orphans: string[]
    repaired: boolean
    unread: Fault[]
    foreign: string[]
    index: string
    unsure: string
  }

  interface VerifyStore {
    key: string
    repair?: boolean
  }

  interface WantedAxis {
    kind: "picks" | "argument" | "setting" | "text"
    name?: string
    values?: string[]
  }

  interface WantedCheck {
    kind: string
    value: string
  }

  interface WantedModel {
    name: string
    device?: "auto" | "cpu" | "cuda" | "mps"
    dtype?: "auto" | "fp32" | "bf16" | "fp16"
    weights?: "auto" | "packed" | "plain"
    quantize?: "none" | "int8" | "int4"
  }

  interface WantedSegments {
    words?: string[]
    schema?: string | null
    path?: string | null
  }

  interface WantedSweep {
    model?: string
    axis: "cached" | "new" | "modules" | "scope" | "repair" | "prompts"
    values?: string[]
    cached?: number
    modules?: number
    new?: number
    repeats?: number
  }

  interface Weighed {
    all: SegmentSums
    pinned: string[]
    schemas: string[]
  }

  interface WhyRead {
    reason: string
    sentence: string
    suggestion: string
  }

  interface Word {
    name: string
    kind: string
    detail: string
    info?: string
    parents?: string[]
    empty?: boolean
  }

  interface WordsOfBoth {
    schema: EditorWords
    prompt: EditorWords
  }

  interface Work extends Texts {
    key: string
    mode?: "both" | "cached" | "uncached"
    settings?: Record<string, any>
  }

  interface Workspace {
    name: string
    schema: string
    prompt: string
    origin: string
    settings: Record<string, any>
    revision: number
    saved: string
    prompt_origin: string
    files: Record<string, any>
  }

  interface WouldGo {
    total: Removed
    first: NextOut[]
    budget: number
    spare: number
    missing: number
    policy: "lru" | "cost"
  }

  interface WriteSnippet extends Texts {
    client: "openai-python" | "anthropic-python" | "curl" | "openai-javascript"
    way?: "inline" | "kept" | "messages"
    address: string
    settings?: Record<string, any>
  }

  interface Written {
    text: string
  }
}
