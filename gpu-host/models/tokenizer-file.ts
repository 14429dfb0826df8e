import { z } from 'zod';

const addedTokenSchema = z.looseObject({
  id: z.int().min(0),
  content: z.string(),
  special: z.boolean().default(false),
});
export type AddedToken = z.infer<typeof addedTokenSchema>;

/** The members of a tokenizer.json that the tokenizers of models and of encoders read. */
export const tokenizerFileSchema = z.looseObject({
  added_tokens: z.array(addedTokenSchema).default([]),
  model: z.looseObject({}),
  pre_tokenizer: z.unknown().default(null),
  post_processor: z.unknown().default(null),
});
