// Printed from pyserver/firstfault/lsp/protocol.py by scripts/generate.py: change it there.

export const DIAGNOSE = "firstfault/diagnose";
export const EXPLAIN = "firstfault/explain";
export const MEASURE = "firstfault/measure";
export const PROVE_FIX = "firstfault/proveFix";
export const SCAFFOLD = "firstfault/scaffold";
export const PROVE_FIX_COMMAND = "firstfault.proveFix";
export const SECTION = "firstfault";
export const SOURCE = "firstfault";
export const UNUSED_IGNORE = "unused-ignore";

export type Rank = number | "all";

/** Either `text` with the `name` to cite it by, or `paths` of files and folders that are one job. */
export interface DiagnoseParams {
  text?: string;
  name?: string;
  paths?: string[];
  workDoneToken?: number | string;
}

/** `id` is a failure's id, or a rule's code or name. */
export interface ExplainParams {
  id: string;
}

export interface ExplainResult {
  markdown: string;
}

export interface Evidence {
  file: string;
  line: number;
  text: string;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
}

export interface Initiating {
  signature: string;
  title: string;
  rank: Rank | null;
  rank_basis: "stated" | "inferred" | null;
  host: string | null;
  time: string | null;
  exception: string;
  message: string;
  frame: Frame | null;
  reason: string;
  evidence: Evidence[];
}

export interface Collateral {
  signature: string;
  ranks: number[];
  reason: string;
  evidence: Evidence[];
}

export interface Suspect {
  rank: number;
  because: string;
}

export interface Missing {
  fact: string;
  how: string;
}

export interface Attempt {
  attempt: number;
  signature: string | null;
  title: string;
  rank: Rank | null;
  exception: string;
  message: string;
  evidence: Evidence[];
}

export interface Read {
  files: number;
  lines: number;
  bytes: number;
  ranks: number[];
  seconds: number;
  skipped: string[];
}

/** What `firstfault/diagnose` answers. */
export interface Report {
  schema: 1;
  verdict: "established" | "symptom-only" | "no-failure";
  initiating: Initiating | null;
  cause: string;
  fix: string[];
  verify: string | null;
  collateral: Collateral[];
  suspects: Suspect[];
  missing: Missing[];
  contradictions: string[];
  related: string[];
  read: Read;
  earlier: Attempt[];
}

/** `command` is run in `cwd` with exactly the environment `env`; without one, with the server's own. The verdicts are shown in the scripts that the command names, and in the document `uri`. */
export interface MeasureParams {
  command?: string[];
  cwd?: string;
  env?: Record<string, string>;
  uri?: string;
  windows?: number;
  timeout?: number;
  workDoneToken?: number | string;
}

export interface MicroBatch {
  rank: number;
  number: number;
  loss: string;
  reduction: string;
  file: string;
  line: number;
  targets: number;
  weight: number | null;
  share: number | null;
  right_share: number | null;
  dropped: boolean;
}

/** `state` says why it does not count, where it does not; `remarks` are sentences for people. */
export interface Window {
  index: number;
  complete: boolean;
  micro_batches: MicroBatch[];
  ratio: number | null;
  mass: number | null;
  ledger: Record<string, unknown>[];
  gradient: Record<string, unknown> | null;
  values: Record<string, unknown>;
  state: string;
  remarks: string[];
}

export interface MeasuredRank {
  rank: number;
  pid: number;
  python: string;
  torch: string;
}

export interface Verdict {
  code: string;
  name: string;
  state: "proven" | "refuted" | "not measured";
  message: string;
  file: string | null;
  line: number | null;
  suspected: boolean;
}

export interface Note {
  probe: string;
  why: string;
}

/** What `firstfault/measure` answers: the JSON of `firstfault measure`, and what a page shows beside it. `right` names faults that were measured and refuted though nobody suspected them, `picture` is SVG, `printed` the end of what the command printed. */
export interface Measurement {
  schema: 1;
  ended: string;
  ranks: MeasuredRank[];
  windows: Window[];
  verdicts: Verdict[];
  notes: Note[];
  right: string[];
  picture: string;
  printed: string;
  command: string[];
}

/** Names a fix: the argument of a code action's command, and a part of what `firstfault/proveFix` is given. */
export interface FixOf {
  uri: string;
  version: number;
  code: string;
  line: number;
  title: string;
}

/** A command as for `firstfault/measure`, and the fix. `line` is that of the finding, from 1. */
export interface ProveFixParams {
  command?: string[];
  cwd?: string;
  env?: Record<string, string>;
  uri?: string;
  windows?: number;
  timeout?: number;
  workDoneToken?: number | string;
  fix: FixOf;
}

/** One number of the run as it stands and of the run with the fix, beside what it should be. */
export interface Compared {
  what: string;
  before: string;
  after: string;
  wanted: string;
  right: boolean;
}

export interface TextPosition {
  line: number;
  character: number;
}

export interface TextRange {
  start: TextPosition;
  end: TextPosition;
}

export interface TextEdit {
  range: TextRange;
  newText: string;
}

/** What `firstfault/proveFix` answers. `after` is null where the fault itself was not proven; `edits` are the fix, for `version` of the document. */
export interface FixProof {
  proved: boolean;
  why: string;
  code: string;
  name: string;
  title: string;
  compared: Compared[];
  before: Measurement;
  after: Measurement | null;
  version: number;
  edits: TextEdit[];
}

export interface ScaffoldParams {
  uri: string;
}

export interface ScaffoldResult {
  text: string;
  name: string;
}

export interface CheckSettings {
  enabled?: boolean;
  disabledRules?: string[];
  select?: string[] | null;
  exclude?: string[];
  severity?: Record<string, string>;
  variableLength?: boolean | null;
  gradAccumulation?: number | null;
}

/** The part of the settings that the server reads: initializationOptions, and the section `firstfault`. */
export interface Settings {
  check?: CheckSettings;
}
