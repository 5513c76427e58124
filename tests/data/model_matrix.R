# Writes tests/data/model_matrix.json: what R's model.matrix makes of formulas.
# Rscript tests/data/model_matrix.R > tests/data/model_matrix.json
rows <- data.frame(
  y = c(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
  x = c(0.5, 2, 3.25, 5, 8, 1, 2.5, 4, 7, 6, 2, 9),
  z = c(-1, 0.25, 2, -3, 1, 4, -0.5, 0, 2.5, -2, 1.5, 3),
  t = c(1, 2, 4, 8, 1, 2, 3, 5, 10, 20, 40, 100),
  a = c("p", "q", "p", "r", "q", "r", "p", "q", "r", "p", "q", "p"),
  b = c("u", "v", "u", "u", "v", "v", "u", "v", "u", "v", "u", "u"),
  k = c(1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 4, 2),
  flag = c(1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1),
  my.var = c(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
  `odd name` = c(3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8),
  check.names = FALSE, stringsAsFactors = TRUE
)
Q <- function(name) rows[[name]]
logical_as_number <- function(frame) {
  for (name in names(frame)) if (is.logical(frame[[name]])) frame[[name]] <- as.numeric(frame[[name]])
  frame
}
# The formula for R; another spelling of it for us follows where it differs.
formulas <- list(
  "y ~ x", "y ~ x - 1", "y ~ 0 + x", "y ~ x + 0 + z", "y ~ 1",
  "y ~ a", "y ~ a - 1", "y ~ a + b - 1", "y ~ x + a - 1", "y ~ a:b", "y ~ a:b - 1",
  "y ~ b + a:b", "y ~ a:x", "y ~ a:x - 1", "y ~ x:a - 1", "y ~ x + a:x", "y ~ a + a:x",
  "y ~ a:x + b:x", "y ~ a*b", "y ~ a*b - 1", "y ~ a*b - a", "y ~ a*b - b", "y ~ a*x*b",
  "y ~ a*b*x - a:b:x", "y ~ a*b*x - a:b", "y ~ a:b:x", "y ~ a:b + a:x", "y ~ x:z + a:x:z",
  "y ~ a/b", "y ~ a/x", "y ~ x/a", "y ~ a/b - 1", "y ~ a/(b + x)", "y ~ (a + x)/b", "y ~ a/b/x",
  "y ~ b %in% a", "y ~ a + b %in% a", "y ~ (a + b + x)^2", "y ~ (a + b + x)^2 - a:x",
  "y ~ (a + b + x + z)^3", "y ~ (a + b)^2 - 1", "y ~ z + x:z + b:a:x + a", "y ~ x + a + x + x:a + a:x",
  "y ~ (x + z):(a + b)", "y ~ (1 + x)*a", "y ~ a + (x - 1)", "y ~ a - a", "y ~ x + z - x",
  c("y ~ C(a, contr.treatment(3, base = 2))", "y ~ C(a, Treatment(\"q\"))"),
  c("y ~ C(a, contr.treatment(3, base = 2))", "y ~ C(a, Treatment(reference='q'))"),
  "y ~ C(a, contr.treatment, base = 3)", "y ~ C(a, contr.treatment(3, base = 2)):x + x",
  c("y ~ C(a, contr.sum)", "y ~ C(a, Sum)"), "y ~ C(a, contr.sum) * b", "y ~ C(a, contr.sum):b",
  "y ~ C(a, contr.helmert)", "y ~ C(factor(k), contr.poly)", "y ~ C(a, contr.SAS)",
  "y ~ C(a, contr.sum) - 1", c("y ~ C(a, MASS::contr.sdif)", "y ~ C(a, contr.sdif)"),
  c("y ~ C(factor(k), contr.helmert)", "y ~ C(k, Helmert)"),
  c("y ~ factor(k)", "y ~ C(k)"), "y ~ factor(k)", "y ~ as.factor(k) - 1", "y ~ k + factor(k)",
  c("y ~ relevel(factor(a), ref = \"q\")", "y ~ relevel(a, ref='q')"),
  "y ~ relevel(factor(k), ref = \"3\") * b",
  "y ~ factor(a, levels = c(\"r\", \"p\", \"q\"))",
  "y ~ I(x^2)", "y ~ I(x^2) + x", "y ~ I(-x^2)", "y ~ I((-x)^2 * 2^-1)", "y ~ I(x * z - z / x)",
  "y ~ I(x %% 3) + I(z %% 2) + I(x %/% 2) + I(z %/% 2)",
  "y ~ log(x) + log(x, 2) + log(x, base = 3) + log2(x) + log10(x) + log1p(x)",
  "y ~ sqrt(x) + exp(z) + abs(z) + sign(z) + expm1(z)",
  "y ~ sin(x) + cos(x) + tan(x) + atan(z) + tanh(z)",
  "y ~ pmin(x, 3) + pmax(x, z, 2)", "y ~ ifelse(x > 2, z, -1)", "y ~ ifelse(a == \"p\", x, 0)",
  "y ~ round(x) + round(z / 7, 2) + round(t * 13, -1) + floor(z) + ceiling(z) + trunc(z)",
  "y ~ log(my.var) + my.var:x", "y ~ `odd name` + log(`odd name`)",
  c("y ~ Q(\"odd name\")", "y ~ Q(\"odd name\")"),
  "y ~ (x > 2)", "y ~ x > 2", "y ~ (x > 2 & z <= 1)", "y ~ (x > 2 | z > 1)", "y ~ I(!(x > 2))",
  "y ~ I(!x > 2 & flag == 1)", "y ~ I(x >= 2) + I(x != 2) + I(a != \"p\")", "y ~ x + (x > 2):z",
  "y ~ I(a %in% c(\"p\", \"r\"))", "y ~ I(k %in% c(1, 4)) * x", "y ~ I((x > 2) + (z > 0))",
  "y ~ flag + flag:x", "y ~ flag * a", "y ~ x + offset(log(t))", "y ~ offset(t) + a + offset(2 * z)",
  "y ~ offset(t) + offset(t)",
  "y ~ . - t - k", "y ~ a:. - k - t", "log(y) ~ . - `odd name`", "y ~ (. - t - k - flag - my.var - `odd name`)^2"
)
plain <- function(values) format(as.numeric(values), digits = 17, trim = TRUE, scientific = NA)
text <- function(value) encodeString(value, quote = '"')
answer <- function(spellings) {
  frame <- model.frame(terms(as.formula(spellings[1]), data = rows), rows)
  matrix <- model.matrix(attr(frame, "terms"), logical_as_number(frame))
  offset <- model.offset(frame)
  if (is.null(offset)) offset <- numeric(0)
  columns <- apply(matrix, 2, function(column) paste0("[", paste(plain(column), collapse = ","), "]"))
  paste0('{"formula":', text(spellings[length(spellings)]), ',"columns":[', paste(columns, collapse = ","),
         '],"offset":[', paste(plain(offset), collapse = ","), "]}")
}
cat("[\n", paste(sapply(formulas, answer), collapse = ",\n"), "\n]\n", sep = "")
