# Writes tests/data/package_formulas.json: model matrices of formulas in the examples of R's packages.
# Rscript tests/data/package_formulas.R > tests/data/package_formulas.json   (R 4.2.2)
# The formulas are those of the packages' authors, but for targets Surv(...), which are y here. The
# rows are made here, with the names and kinds of the packages' columns and none of their values.
RNGversion("4.0.0")
set.seed(11)
n <- 16
sources <- list(
  MASS = c(
    "Gas ~ Insul/(Temp + I(Temp^2)) - 1", "Gas ~ Insul/Temp - 1", "Gas ~ Insul * Temp",
    "y ~ pred + factor(subject) + offset(log(time))", "y ~ lbase * trt + lage + V4",
    "Freq ~ Infl * Type * Cont + Sat * (Infl + Type + Cont)", "Freq ~ Infl * Type * Cont + Sat",
    "Days ~ Sex/(Age + Eth * Lrn)", "Days ~ Age * Sex * Eth * Lrn", "log(Days + 2.5) ~ (Eth + Sex + Age + Lrn)^4",
    "Days ~ Eth * Age * Lrn * Sex - Eth:Age:Lrn:Sex", "Days ~ .^2", "L75 ~ Noise/(Age + OME)", "L75 ~ Noise/Age",
    "Claims ~ District + Group + Age + offset(log(Holders))", "y ~ trt + I(week > 2)",
    "y ~ trt + week + offset(week)", "yield ~ block + N * P * K", "y ~ factor(temp)",
    "y ~ factor(pair) + treat", "SF ~ sex + ldose - 1", "lang ~ IQ * COMB + IQave + SES",
    "cbind(y, n - y) ~ P * A + V", "Volume ~ log(Height) + log(Girth)"
  ),
  survival = c(
    "y ~ factor(ph.ecog) * sex + age", "y ~ (age + surgery) * transplant", "y ~ age + I(age^2)",
    "y ~ cut(age + 48, c(0, 50, 60, 70, 100)) + surgery", "y ~ trt + factor(celltype) + karno + age",
    "y ~ age + factor(rx) + I(ecog.ps)", "skips ~ Solder * Opening + Mask",
    "event ~ year + age + sex + offset(log(pyears))", "y ~ trt + log(bili) + log(protime) + age + platelet"
  ),
  nlme = c(
    "rate ~ (pressure + I(pressure^2) + I(pressure^3) + I(pressure^4)) * QB", "distance ~ Sex * I(age - 11)",
    "pixel ~ day + day^2", "weight ~ Time * Diet", "yield ~ variety - 1"
  ),
  car = c(
    "prestige ~ type * (income + education)", "prestige ~ log2(income) + education + poly(women, 2)",
    "wages ~ education + poly(age, 2) + sex", "conformity ~ fcategory * partner.status",
    "rate ~ log(len) + log(adt) + slim + shld + log(sigs1)"
  ),
  boot = c("time ~ ag - 1 + log10(wbc)", "log(cost) ~ date + log(cap) + ne + ct + log(cum.n) + pt"),
  stats = c(
    "weight ~ group + I(group != \"Ctl\")", "y ~ x + I(x^2) + I(x^3) + I((x - 10)^2)", "lot2 ~ log(u) + log(u^2)",
    "Postwt ~ Prewt + Treat + offset(Prewt)", "cbind(ncases, ncontrols) ~ agegp + tobgp * alcgp",
    "sqrt(dist) ~ I(speed/2)", "breaks ~ wool + C(tension, base = 2)", "breaks ~ wool * tension"
  ),
  datasets = "Freq ~ origin + destination + Diag + Rscore:Cscore"
)
categories <- list(
  Insul = c("Before", "After"), trt = c("placebo", "drug", "drug+"), Infl = c("Low", "Medium", "High"),
  Type = c("Tower", "Apartment", "Atrium", "Terrace"), Cont = c("Low", "High"), Sat = c("Low", "Medium", "High"),
  Sex = c("F", "M"), Age = c("F0", "F1", "F2", "F3"), Eth = c("A", "N"), Lrn = c("AL", "SL"),
  Noise = c("coherent", "incoherent"), OME = c("high", "low"), District = 1:4, Group = c("<1l", "1-1.5l", ">2l"),
  block = 1:3, N = 0:1, P = c("L", "S"), K = 0:1, V = c("L", "S"), A = c("A", "I"), treat = c("6-MP", "control"),
  COMB = 0:1, sex = c("female", "male"), celltype = c("squamous", "smallcell", "adeno"), Solder = c("Thick", "Thin"),
  Opening = c("S", "M", "L"), Mask = c("A1.5", "A3", "B3"), QB = c(200, 300), Diet = 1:3, ag = c("absent", "present"),
  variety = c("ARAPAHOE", "BRULE", "BUCKSKIN"), type = c("bc", "prof", "wc"), fcategory = c("high", "low", "medium"),
  partner.status = c("high", "low"), group = c("Ctl", "Trt"), Treat = c("CBT", "Cont", "FT"), wool = c("A", "B"),
  tension = c("L", "M", "H"), agegp = c("25-34", "35-44", "45-54"), tobgp = c("0-9g/day", "10-19", "20+"),
  alcgp = c("0-39g/day", "40-79"), origin = 1:4, destination = 1:4, Diag = 1:3, transplant = 0:1
)
codes <- list(subject = 4, ph.ecog = 3, temp = 3, pair = 5, rx = 2)
column <- function(name) {
  if (name %in% names(categories)) {
    levels <- categories[[name]]
    return(factor(sample(c(levels, sample(levels, n - length(levels), TRUE))), levels = levels))
  }
  if (name %in% names(codes)) return(as.numeric(sample(c(seq_len(codes[[name]]), sample(codes[[name]], n - codes[[name]], TRUE)))))
  round(runif(n, 0.5, 20), 2)
}
plain <- function(values) format(as.numeric(values), digits = 17, trim = TRUE, scientific = NA)
text <- function(value) encodeString(value, quote = '"')
array <- function(values) paste0("[", paste(values, collapse = ","), "]")
object <- function(values) {
  paste0("{", if (length(values)) paste(paste0(text(names(values)), ":", values), collapse = ","), "}")
}
answer <- function(package, formula) {
  names <- if (formula == "Days ~ .^2") c("Days", "Eth", "Sex", "Age", "Lrn") else all.vars(as.formula(formula))
  rows <- as.data.frame(sapply(names, column, simplify = FALSE), check.names = FALSE)
  frame <- model.frame(terms(as.formula(formula), data = rows), rows)
  for (name in names(frame)) if (is.logical(frame[[name]])) frame[[name]] <- as.numeric(frame[[name]])
  matrix <- model.matrix(attr(frame, "terms"), frame)
  offset <- model.offset(frame)
  is_level <- sapply(rows, is.factor)
  object(c(
    package = text(package), formula = text(formula),
    rows = object(sapply(rows, function(each) array(if (is.factor(each)) text(as.character(each)) else plain(each)))),
    levels = object(sapply(rows[is_level], function(each) array(text(levels(each))))),
    columns = array(apply(matrix, 2, function(each) array(plain(each)))),
    offset = array(if (is.null(offset)) character(0) else plain(offset))
  ))
}
answers <- unlist(lapply(names(sources), function(package) sapply(sources[[package]], answer, package = package)))
cat("[\n", paste(answers, collapse = ",\n"), "\n]\n", sep = "")
