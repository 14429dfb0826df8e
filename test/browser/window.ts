import type { BrowserContextOptions, Page } from 'playwright-core';

/** Opens a signed-in window for a test. With `mayComplain`, errors on the browser's console do not fail the test. */
export type OpenWindow = (
  options: BrowserContextOptions & { mayComplain?: boolean },
  use: (page: Page) => Promise<void>,
) => Promise<void>;
