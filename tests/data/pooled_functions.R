# Rscript tests/data/pooled_functions.R > tests/data/pooled_functions.json   (R 4.2.2)
# The first 30 rows of basis matrices, fits and predictions of functions that depend on all rows of 150.
library(jsonlite)
library(splines)
RNGversion("4.0.0")
set.seed(7)
n <- 150
d <- data.frame(
  site = c(rep("a", 70), rep("b", 50), rep("c", 30)),
  year = sample(1990:2020, n, replace = TRUE),
  age = round(rnorm(n, 50, 12), 1),
  dose = round(exp(rnorm(n, 1, 0.5)), 2),
  g = sample(c("f", "m"), n, replace = TRUE)
)
d$y <- round(0.02 * (d$year - 2005)^2 + sin(d$age / 10) + 0.3 * (d$g == "m") + rnorm(n), 3)
d$event <- as.integer(runif(n) < plogis((d$age - 50) / 12))
new <- data.frame(
  year = c(1985, 2003, 2025), age = c(5, 51.5, 99), dose = c(0.4, 3, 30), g = c("f", "m", "m")
)
calls <- c(
  "poly(year, 5)", "poly(dose, 3)", "poly(year, 1)", "poly(age, 3, raw=TRUE)",
  "scale(age)", "scale(age, center=FALSE)", "scale(age, scale=FALSE)",
  "scale(age, center=40, scale=TRUE)", "scale(age, 40, 12)",
  "bs(age, knots=c(40, 50, 60), Boundary.knots=c(20, 85))",
  "bs(age, knots=c(45, 55), Boundary.knots=c(35, 65))",
  "bs(age, knots=c(45), degree=2, intercept=TRUE, Boundary.knots=c(10, 90))",
  "ns(age, knots=c(40, 50, 60), Boundary.knots=c(20, 85))",
  "ns(age, knots=c(45, 55), Boundary.knots=c(35, 65))",
  "ns(age, knots=c(45), intercept=TRUE, Boundary.knots=c(35, 65))",
  "ns(age, df=1, Boundary.knots=c(35, 65))"
)
basis <- lapply(calls, function(call)
  unname(unclass(suppressWarnings(eval(parse(text = call), d)))[, , drop = FALSE]))
basis <- lapply(basis, function(m) matrix(as.numeric(m), nrow(m))[1:30, , drop = FALSE])
names(basis) <- calls
cuts <- c(
  "cut(age, c(20, 40, 50, 60))", "cut(age, c(20, 40.5, 60), right=FALSE)",
  "cut(year, c(1990, 2000, 2010, 2020), include.lowest=TRUE)",
  "cut(year, c(1990, 2000, 2020), right=FALSE, include.lowest=TRUE)",
  "cut(dose, c(-Inf, 2.12345, 2.12346, 1234567, Inf))",
  "cut(age, c(0, 50, 100), labels=c('young', 'old'))", "cut(dose, c(0, 1.23456, 5), dig.lab=5)"
)
intervals <- lapply(cuts, function(call) {
  f <- eval(parse(text = call), d)
  list(levels = levels(f), codes = ifelse(is.na(f), 0L, as.integer(f)))
})
names(intervals) <- cuts
# The formula, the family, and what R is told in the place of what clients agree on.
fits <- list(
  c("y ~ poly(year, 3) + scale(log(dose))", "gaussian"),
  c("y ~ poly(log(dose), 2) + g", "gaussian"),
  c("y ~ poly(year, 2):g + g", "gaussian"),
  c("y ~ center(age) + I(scale(age)^2)", "gaussian",
    "y ~ I(age - M) + I(((age - M)/S)^2)"),
  c("y ~ bs(I(age/10), knots=c(4, 5), Boundary.knots=c(2, 8.5))", "gaussian"),
  c("event ~ ns(age, knots=c(45, 55), Boundary.knots=c(35, 65)) + g", "binomial"),
  c("y ~ cut(age, c(20, 40, 50, 60)) + scale(year)", "gaussian"),
  c("y ~ cut(age, c(0, 50, 100)):year + g", "gaussian"),
  c("y ~ ns(age, df=3) + bs(dose, df=4)", "gaussian", paste(
    "y ~ ns(age, knots=c(45.7, 54.9), Boundary.knots=c(25, 75)) +",
    "bs(dose, knots=c(2.63), Boundary.knots=c(1, 6))")),
  c("event ~ cut(age, 3) + g", "binomial", "event ~ cut(age, c(-Inf, 41.7, 58.3, Inf)) + g")
)
M <- mean(d$age)
S <- sd(d$age)
fitted <- lapply(fits, function(f) {
  formula <- as.formula(tail(f[-2], 1))
  m <- suppressWarnings(glm(formula, get(f[2])(), d, epsilon = 1e-15, maxit = 100))
  s <- coef(summary(m))
  list(
    formula = f[1], family = f[2], names = rownames(s), coef = unname(s[, 1]),
    se = unname(s[, 2]), n = nobs(m),
    predicted = unname(suppressWarnings(predict(m, new, type = "response")))
  )
})
write(toJSON(
  list(data = d, new = new, basis = basis, intervals = intervals, fits = fitted),
  digits = 17, dataframe = "columns", na = "null", auto_unbox = TRUE
), stdout())
