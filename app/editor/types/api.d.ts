// What the page asks the server. Written by `python -m tests.app.endpoint_types`.
declare namespace Api {
  /** Each question: what is sent, and what is answered. */
  interface Questions {
    add_scaffold: [AddScaffold, Written]
    cache_budget: [StoreSize, Gone]
    cache_delete: [DeleteSegments, Gone]
    cache_pin: [PinSchema, Pins]
    cache_prune: [StoreSize, Gone]
    cache_state: [Nothing, StoreState]
    cache_surplus: [StoreSize, Surplus]
    cache_verify: [VerifyStore, JobState<Verified>]
    check: [Check, CheckedTexts]
    count_tokens: [OneText, Counted]
    edit_prompt: [EditPrompt, Prompted]
    export_as: [Export, Exported]
    find_modules: [Find, FoundModules]
    fix_document: [FixDocument, Written]
    format_document: [OneText, Written]
    job_state: [OneJob, JobState<Record<string, any>>]
    list_files: [Nothing, Files]
    list_samples: [Nothing, Gallery]
    measure: [Measure, Measured]
    measure_fidelity: [Work, JobState<Fidelity>]
    model: [Nothing, ModelState]
    open_file: [OpenFile, Opened]
    open_sample: [OpenSample, Opened]
    open_shelved: [OpenShelved, Opened]
    open_text: [OpenText, Opened]
    open_workspace: [Nothing, Start]
    save_as: [SaveAs, FileSaved]
    save_draft: [SaveDraft, DraftSaved]
    save_file: [SaveFile, FileSaved]
    shelf: [Nothing, Shelf]
    shelve: [Shelve, Shelved]
    show_run: [OneRun, OldRun]
    stop_job: [OneJob, Done]
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

  interface Attribute {
    name: string
    detail: string
  }

  interface Basis {
    digest: string
    stale: boolean
    tree?: TreeRow[]
    words?: WordsOfBoth
  }

  interface Check extends Texts {
    fallback?: string | null
    known?: string | null
  }

  interface CheckedPrompt {
    diagnostics: Mark[]
    name: string
  }

  interface CheckedSchema {
    diagnostics: Mark[]
    name: string
    ok: boolean
    modules: number
  }

  interface CheckedTexts {
    texts: string
    schema: CheckedSchema
    prompt: CheckedPrompt
    basis: Basis
    picks: Picks
  }

  interface ComparedSoFar {
    ttft_speedup?: number
    first_token_agrees?: boolean
    kl_first_token?: number
    same_text?: boolean
  }

  interface Counted {
    tokens: number
  }

  interface DeleteSegments {
    keys: string[]
  }

  interface Difference {
    cached: [string, boolean][]
    uncached: [string, boolean][]
    differing: number
  }

  interface Done {
  }

  interface DraftSaved {
    revision?: number
    saved?: string
    conflict?: Workspace
    message?: string
  }

  interface EditPrompt extends Texts {
    edit: Argument | Pick
  }

  interface EditorWords {
    elements: Word[]
    attributes: Record<string, Attribute[]>
    help: Record<string, string>
  }

  interface Eviction {
    at: number
    key: string
    schema: string | null
    path: string | null
    bytes: number
    reason: string
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

  interface Fault {
    key: string
    file: string
    what: string
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
  }

  interface FileSaved {
    saved?: string
    origin?: string
    stamp?: Stamp
    files?: string[]
    refused?: "elsewhere" | "unknown" | "gone" | "changed"
    message?: string
  }

  interface Files {
    files: string[]
  }

  interface Find extends Texts {
    words: string
  }

  interface FixDocument extends Texts {
    kind: "schema" | "prompt"
    code: string
    at: number
  }

  interface Flip {
    position: number
    uncached: string
    cached: string
    before: string
    kl: number
  }

  interface FoundModules {
    paths: string[]
  }

  interface Gallery {
    samples: Sample[]
  }

  interface Gone {
    removed: Removed
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

  interface KeptWorkspace {
    key: string
    name: string
    saved: string
    schema: string
    prompt: string
  }

  interface Mark {
    code: string
    severity: "error" | "warning" | "info"
    message: string
    fix: string
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
    diagnostics: MarksOfBoth
  }

  interface MemoryUse {
    bytes: number
    budget: number
  }

  interface ModelFacts {
    about: string
    name: string
    family: string
    device: string
    dtype: string
    weights: string
    context_length: number
    bytes_per_token: number
    summary: string
  }

  interface ModelState {
    loading: string
    model: ModelFacts | null
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

  interface Nothing {
  }

  interface OldRun {
    run: RunFrame
  }

  interface OneJob {
    key: string
  }

  interface OneRun {
    number: number
  }

  interface OneText {
    text: string
  }

  interface OpenFile extends Shelve {
    name: string
    encoding?: "utf-8" | "windows-1252" | "utf-16"
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

  interface Parameter {
    name: string
    length: number
    default: string
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
  }

  interface PinSchema {
    schema: string
    pinned: boolean
  }

  interface Pins {
    pins: string[]
  }

  interface Prompted {
    prompt: string
  }

  interface Remedy {
    what: string
    repair: string
    scaffold: string[]
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

  interface RunFrame {
    number: number
    schema: string
    texts: string
    started: string
    scope: string
    repair: string
    placement: string
    order: ("cached" | "uncached")[]
    repeats: number
    repeat: number
    state: "waiting" | "working" | "streaming" | "done" | "stopped" | "not run" | "failed"
    message: string
    warnings: string[]
    sides: Sides
    comparison: ComparedSoFar
    difference: Difference | null
  }

  interface Sample {
    name: string
    title: string
    description: string
    prompts: SamplePrompt[]
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

  interface SegmentRow {
    key: string
    schema: string | null
    path: string | null
    tokens: number
    bytes: number
    scope: string
    model: string
    hits: number
    last_used: number
    pinned: boolean
    tier: "disk" | "memory"
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

  interface SideFrame {
    state: "waiting" | "working" | "streaming" | "done" | "stopped" | "not run" | "failed"
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
    waited_ms: number
    ended: string
  }

  interface Sides {
    cached: SideFrame
    uncached: SideFrame
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
    files: string[]
    settings: SettingForm[]
    tiers: TierWords[]
    timeline_parts: Record<"parse" | "plan" | "encode" | "load" | "repair" | "prefill" | "sample", string>
    runs: RunFrame[]
  }

  interface StoreSize {
    bytes: number
  }

  interface StoreState {
    segments: SegmentRow[]
    left_out: number
    stats: StoreStats
    memory: MemoryUse
    pins: string[]
    evictions: Eviction[]
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

  interface Texts {
    schema?: string
    prompt?: string
    origin?: string
  }

  interface TierWords {
    name: "none" | "disk" | "memory"
    label: string
    meaning: string
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

  interface Written {
    text: string
  }
}
