import { z } from 'zod';

/** Reasons that a build was refused or failed; the gateway answers these codes unchanged. */
const codeSchema = z.enum([
  'not-wasm',
  'core-module',
  'wrong-world',
  'component-too-large',
  'unsupported-component',
  'build-failed',
  'build-timeout',
]);

const diagnosticSchema = z
  .strictObject({
    file: z.string(),
    line: z.int(),
    column: z.int(),
    text: z.string(),
    /** The source line of the fault. */
    source: z.string(),
  })
  .readonly();

/** Validates a failure that a child reports: the child has read untrusted bytes, which may have taken it over. */
export const failureSchema = z
  .strictObject({
    ok: z.literal(false),
    code: codeSchema,
    /** The fault and its reason. */
    message: z.string(),
    /** Advice on how to correct the fault. */
    hint: z.string(),
    diagnostics: z.array(diagnosticSchema).readonly().optional(),
  })
  .readonly();

export type BuildCode = z.output<typeof codeSchema>;
/** One fault in a source file. Lines and columns count from 1. */
export type Diagnostic = z.output<typeof diagnosticSchema>;
export type BuildFailure = z.output<typeof failureSchema>;
