/** Pattern of a function's name, which appears in URLs, keys and commands. */
export const FUNCTION_NAME = /^[a-z][a-z0-9-]{0,62}$/;
